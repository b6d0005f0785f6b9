"""The interface through which requests reach one server, for every transport and era, and the errors that it raises."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId, Json, JsonObject
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.protocol.mirrored import Headers

if TYPE_CHECKING:
    from toolpost.upstreams.instance import Instance
    from toolpost.upstreams.server_requests import ClientChannel

encode = msgspec.json.Encoder().encode

ProgressListener = Callable[[str, bytes], None]
"""Takes a notification about one request: its method and the JSON of its parameters."""


class ServerRefused(Exception):
    """The server answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class ConnectionLost(UpstreamUnavailable):
    """The connection to the server broke."""

    def __init__(self, message: str | None = None, /, *, was_sent: bool = True, **options: Any) -> None:
        super().__init__(message, **options)
        self.was_sent = was_sent


class UpstreamRequest(msgspec.Struct, frozen=True):
    """A request to a server, as every transport and era takes it."""

    method: str
    fields: bytes = b""
    """The inside of `params`, without braces."""
    meta: JsonObject | None = None
    name: str | None = None
    """The tool, prompt or resource. In the stateless era over HTTP it is a header too, as `mirrored` are."""
    mirrored: Headers = ()
    on_progress: ProgressListener | None = None
    client_channel: "ClientChannel | None" = None
    """Takes the server's own requests while it handles this one."""
    caller: Caller | None = None
    """None for requests of the gateway itself."""

    @property
    def caller_id(self) -> CallerId | None:
        return None if self.caller is None else self.caller.id


class PendingRequest(Protocol):
    """A request that was sent by `try_send`, before a task awaits its answer."""

    @property
    def answer(self) -> "asyncio.Future[Any]":
        """Done when the request is answered or lost; never, if `on_answer` accepted the result."""
        ...

    on_answer: Callable[[bytes], bool] | None
    """Called with the JSON of a result as soon as it arrives; True accepts it, and ends the request. Must not raise."""

    observed: Any
    """What an observer is told of it; set by `ObservedTransport` alone."""


class Transport(Protocol):
    """Requests to one server."""

    def use(self, *, request_meta: JsonObject, headers: Mapping[str, str]) -> None:
        """Set what the agreed revision puts into the `_meta` of every request, and into its HTTP headers."""
        ...

    async def request(self, request: UpstreamRequest, /) -> bytes:
        """Send a request and return the JSON of its result; cancelling also cancels it on the server.

        Raises `ServerRefused`, or `UpstreamUnavailable` (`ConnectionLost` if the connection is gone).
        """
        ...

    def try_send(self, request: UpstreamRequest, /) -> PendingRequest | None:
        """Send a call if that needs no waiting, else return None; await `wait_for` unless `on_answer` accepts the result."""
        ...

    async def wait_for(self, pending: Any, /) -> bytes:
        """Await the result of a request that `try_send` sent; returns and raises as `request` does."""
        ...

    async def notify(self, method: str, fields: bytes = b"") -> None: ...

    async def notify_roots_changed(self, client_channel: "ClientChannel") -> None:
        """Announce that the roots of a client changed, if the server has asked for them before."""
        ...


def write_params(fields: bytes, meta: JsonObject) -> bytes:
    """Write the JSON of `params`: the fields as they are, and `_meta` unless it is empty."""
    if not meta:
        return b"{%b}" % fields
    return b'{%b%b"_meta":%b}' % (fields, b"," if fields else b"", encode(meta))


class SentRequest(msgspec.Struct, frozen=True, gc=False):
    """A request that was sent before a task awaits its answer. Its instance is acquired."""

    instance: "Instance"
    transport: Transport
    pending: PendingRequest
    began: float
