"""A way to a server, and what may go wrong on it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from toolpost.base.ids import CallerId, Json, JsonObject
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.protocol.mirrored import Headers

if TYPE_CHECKING:
    from toolpost.upstreams.server_requests import ClientChannel

encode = msgspec.json.Encoder().encode

ProgressListener = Callable[[str, bytes], None]
"""Takes a notification: its method and the JSON of its parameters."""

Ask = Callable[[str, bytes], "Any"]


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
        """Whether the server may have seen the request: only one that it cannot have seen is tried again."""


class PendingRequest(Protocol):
    """A request that was sent, and whose answer nobody waits for yet."""

    @property
    def answer(self) -> "asyncio.Future[Any]":
        """Is done when it is answered or lost, and was not taken ahead."""
        ...

    take_ahead: Callable[[bytes], bool] | None
    """Is told the JSON of a result as soon as it comes, and says whether that was the end of it. Raises nothing."""


class Transport(Protocol):
    """Requests to one server, in whatever era and over whatever transport it speaks."""

    def use(self, *, envelope: JsonObject, headers: Mapping[str, str]) -> None:
        """Speak the revision that was agreed: what every request carries in `_meta`, and in HTTP headers."""
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
        """Ask, and return the JSON of the result; cancelling cancels upstream.

        `fields` is the inside of the parameters; `name` and `mirrored` go into headers too, where era and transport have it so.
        `client_channel` is whom the server may ask back while it handles this; `caller` is whose request it is, None for our own.
        """
        ...

    def send_ahead(
        self,
        method: str,
        fields: bytes,
        *,
        name: str,
        meta: JsonObject,
        client_channel: "ClientChannel | None",
        caller: CallerId,
    ) -> PendingRequest | None:
        """Ask now, if nothing is to be waited for; `answer_to` must follow, unless the answer is taken ahead."""
        ...

    async def answer_to(self, pending: Any, /) -> bytes:
        """Return the JSON of the result of what was sent ahead, as `request` does."""
        ...

    async def notify(self, method: str, fields: bytes = b"") -> None:
        """Tell the server something."""
        ...

    async def roots_changed(self, client_channel: "ClientChannel") -> None:
        """Tell the server that a client has other folders, if it knows of those; it may ask for them."""
        ...


def write_params(fields: bytes, meta: JsonObject) -> bytes:
    """Write parameters: the fields as they are, and `_meta` if there is any."""
    if not meta:
        return b"{%b}" % fields
    return b'{%b%b"_meta":%b}' % (fields, b"," if fields else b"", encode(meta))
