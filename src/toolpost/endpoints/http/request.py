"""One HTTP request as the endpoint sees it: headers folded, body bounded, nothing decided yet.

A body is read only by a handler that has admitted the request. A response that begins before all of the body has come is the last
of its connection: the rest is not read.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import cached_property
from typing import Any, Final, Protocol

from toolpost.contracts.errors import ErrorCode
from toolpost.discovery import EVERYTHING, View
from toolpost.endpoints.http.refusal import Refused

Scope = Any
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

_SINGLE_HEADERS: Final = frozenset(
    {
        *(b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-session-id"),
        *(b"host", b"origin", b"authorization", b"content-type", b"content-length"),
    }
)
_LAST: Final = (b"connection", b"close")


class Connection(Protocol):
    """Where a request came in, as far as it matters to the request."""

    @property
    def has_whole_request(self) -> bool:
        """Whether all of the body has come."""
        ...

    def note_admitted(self) -> None:
        """Take the connection for one of a caller who may come in."""
        ...


class HttpRequest:
    """What came in, and the way to answer it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = _folded(scope["headers"])
        self.view: View = EVERYTHING
        """What the path shows of all tools, once that is known."""
        self.receive = receive
        self._send = send
        self._connection: Connection | None = scope.get("connection")

    async def send(self, event: Any) -> None:
        """Send a part of the response."""
        if event["type"] == "http.response.start" and self._connection and not self._connection.has_whole_request:
            event = {**event, "headers": [*event["headers"], _LAST]}
        await self._send(event)

    def note_admitted(self) -> None:
        """Take note that its caller may come in: the connection is not displaced by those of strangers."""
        if self._connection is not None:
            self._connection.note_admitted()

    @cached_property
    def version(self) -> str:
        """The revision that the header names, empty without one."""
        return self.headers.get(b"mcp-protocol-version", b"").decode("latin-1")

    @cached_property
    def session_id(self) -> str:
        """The session that the header names, empty without one."""
        return self.headers.get(b"mcp-session-id", b"").decode("latin-1")

    @property
    def is_json(self) -> bool:
        """Whether the body says that it is JSON."""
        return self.headers.get(b"content-type", b"").lower().startswith(b"application/json")

    def takes(self, media_type: bytes) -> bool:
        """Whether the client accepts this type."""
        accepted = self.headers.get(b"accept", b"*/*").lower()
        family = media_type.split(b"/")[0] + b"/*"
        return media_type in accepted or b"*/*" in accepted or family in accepted

    async def body(self, limit: int) -> bytes | None:
        """Read the whole body, None if the client went away meanwhile; one that is too large is not read at all."""
        declared = self.headers.get(b"content-length", b"0")
        if int(declared) > limit:
            raise _too_large(limit)
        event = await self.receive()
        # A server that is not ours may leave an empty body out.
        body = event.get("body", b"")
        if event["type"] == "http.request" and not event.get("more_body") and len(body) <= limit:
            self.note_admitted()
            return bytes(body)
        return await self._rest(event, limit)

    async def _rest(self, event: Any, limit: int) -> bytes | None:
        parts = bytearray()
        while event["type"] == "http.request":
            parts += event.get("body", b"")
            if len(parts) > limit:
                raise _too_large(limit)
            if not event.get("more_body"):
                self.note_admitted()
                return bytes(parts)
            event = await self.receive()
        return None

    def replayed(self, body: bytes) -> Receive:
        """Let somebody else read a body that was read already."""
        is_first = True

        async def again() -> Any:
            nonlocal is_first
            if is_first:
                is_first = False
                return {"type": "http.request", "body": body, "more_body": False}
            return await self.receive()

        return again


def _too_large(limit: int) -> Refused:
    return Refused(413, ErrorCode.INVALID_REQUEST, f"A message has at most {limit} bytes")


def _folded(raw: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for name, value in raw:
        if name in headers and name in _SINGLE_HEADERS:
            # Whoever reads the first copy and whoever reads the last would not agree.
            raise Refused(400, ErrorCode.INVALID_REQUEST, f"The {name.decode('latin-1')} header appears more than once")
        headers[name] = value
    return headers
