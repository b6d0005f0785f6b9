"""The interface through which requests reach one server, for every transport and era, and the errors that it raises."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

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

    def use(self, *, envelope: JsonObject, headers: Mapping[str, str]) -> None:
        """Set what the agreed revision puts into the `_meta` of every request, and into its HTTP headers."""
        ...

    async def request(
        self,
        method: str,
        fields: bytes = b"",
        *,
        meta: JsonObject | None = None,
        name: str | None = None,
        mirrored: Headers = (),
        on_progress: ProgressListener | None = None,
        client_channel: "ClientChannel | None" = None,
        caller: CallerId | None = None,
    ) -> bytes:
        """Send a request and return the JSON of its result; cancelling also cancels it on the server.

        `fields` is the inside of `params`, without braces. `name` and `mirrored` become headers too, in the stateless era over
        HTTP. `client_channel` takes the server's own requests while it handles this one. `caller` is None for requests of the
        gateway itself. Raises `ServerRefused`, or `UpstreamUnavailable` (`ConnectionLost` if the connection is gone).
        """
        ...

    def try_send(
        self,
        method: str,
        fields: bytes,
        *,
        name: str,
        meta: JsonObject,
        client_channel: "ClientChannel | None",
        caller: CallerId,
    ) -> PendingRequest | None:
        """Send a request if that needs no waiting, else return None; await `wait_for` unless `on_answer` accepts the result."""
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
