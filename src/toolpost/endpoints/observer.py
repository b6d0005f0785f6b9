"""Observes all requests, for telemetry. Without an observer, none of this costs anything."""

from typing import Protocol

from toolpost.endpoints.calls import RequestObserver
from toolpost.upstreams.observed import ServerObserver
from toolpost.upstreams.spec import ServerSpec


class Observer(RequestObserver, Protocol):
    """Called for all that passes: calls (`begin`, `end`), other requests of clients, and requests to servers."""

    def observe_server(self, spec: ServerSpec, /) -> ServerObserver:
        """Return what is called for the requests to a new instance of a server."""
        ...
