"""Who requests a resource, a prompt or a completion, and how the request is limited."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from toolpost.base.caller import Caller
from toolpost.base.ids import META_KEY, CallId, JsonObject
from toolpost.providers.server_provider import routing_key
from toolpost.upstreams.server_requests import ClientChannel


class LimitedRead(Protocol):
    """A read that ends at its time limit."""

    def enter(self, source: str, *, limit_s: float) -> None:
        """Note which plugin reads, for the audit, and set the time limit, from the beginning of the read."""
        ...

    def pause_deadline(self, *, at_most_s: float = 0.0) -> AbstractContextManager[None]:
        """Stop the clock until the context is left."""
        ...


@dataclass(frozen=True, kw_only=True)
class Requester:
    """The caller of a request, and its path back to the client."""

    caller: Caller
    meta: JsonObject = field(default_factory=dict)
    client_channel: ClientChannel | None = None
    """Takes requests of the server; None if the client takes none."""
    call_id: CallId | None = None
    """Of the audit entry; None for a request that leaves none."""
    operation: LimitedRead | None = None
    """The read; None for a request without a time limit of its own, such as a list."""

    enter: Callable[[str], None] | None = None
    """Called with the server right before a request that may have effects is sent to it; None if no record is needed."""

    @property
    def named_server(self) -> str | None:
        """The server that the request names, `server` under `dev.toolpost/meta` in its `_meta`; None if it names none."""
        facts = self.meta.get(META_KEY)
        named = facts.get("server") if isinstance(facts, dict) else None
        return named if isinstance(named, str) else None

    @property
    def key(self) -> str:
        """The key of the instance, for servers with one instance per session."""
        return routing_key(self.caller, self.meta)
