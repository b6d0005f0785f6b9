"""Observes all requests, for telemetry. Without an observer, none of this costs anything."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from toolpost.endpoints.calls import RequestObserver
from toolpost.gateway import CallObserver
from toolpost.upstreams.spec import ServerSpec
from toolpost.upstreams.transport import Transport


class Observer(CallObserver, RequestObserver, Protocol):
    """Called for all that passes: calls (`begin`, `end`), their requests (`describe`), and the requests below."""

    def observe_transport(self, transport: Transport, spec: ServerSpec, /) -> AbstractContextManager[Transport]:
        """Wrap the transport of an instance of a server, for as long as it is open."""
        ...

    async def observe_sdk(self, context: Any, call_next: Callable[[Any], Awaitable[Any]], /) -> Any:
        """Answer a request that is left to the SDK, by `call_next(context)`: middleware of the SDK's kind."""
        ...
