"""One HTTP request as ASGI handlers see it: headers checked for duplicates, the body bounded.

A handler authenticates a request before it reads the body. A response that begins before all of the body has arrived is the
last of its connection: the rest is not read.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import cached_property
from typing import Any, Final, Protocol

from toolpost.base.ids import new_call_id
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


class RequestConnection(Protocol):
    """The connection of a request, as far as handlers need it."""

    @property
    def has_whole_request(self) -> bool:
        """Whether all of the body has arrived."""
        ...

    def note_admitted(self) -> None:
        """Count the connection as authenticated."""
        ...

    def note_too_large(self) -> None:
        """Drop the rest of a body that is too large, instead of resetting the connection."""
        ...


class HttpRequest:
    """An ASGI request and its response channel."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = _parse_headers(scope["headers"])
        self.view: View = EVERYTHING
        """The view of the path, within the caller's scopes; `EVERYTHING` until the router has set it."""
        self.id: str = new_call_id()
        """Sent back as `X-Request-Id`; for a call its own id, which is in the log and in the audit too."""
        self.receive = receive
        self._send = send
        self._connection: RequestConnection | None = scope.get("connection")

    async def send(self, event: Any) -> None:
        """Send an ASGI event of the response."""
        if event["type"] == "http.response.start":
            last = [_LAST] if self._connection and not self._connection.has_whole_request else []
            event = {**event, "headers": [*event.get("headers", ()), (b"x-request-id", self.id.encode()), *last]}
        await self._send(event)

    def note_admitted(self) -> None:
        """Note that the caller is authenticated: unauthenticated connections no longer displace this one."""
        if self._connection is not None:
            self._connection.note_admitted()

    @cached_property
    def version(self) -> str:
        """The revision in the header, empty without one."""
        return self.headers.get(b"mcp-protocol-version", b"").decode("latin-1")

    @cached_property
    def session_id(self) -> str:
        """The session in the header, empty without one."""
        return self.headers.get(b"mcp-session-id", b"").decode("latin-1")

    @property
    def is_json(self) -> bool:
        """Whether the content type of the body is JSON."""
        return self.headers.get(b"content-type", b"").lower().startswith(b"application/json")

    def accepts(self, media_type: bytes) -> bool:
        """Whether the client accepts this media type."""
        accepted = self.headers.get(b"accept", b"*/*").lower()
        family = media_type.split(b"/")[0] + b"/*"
        return media_type in accepted or b"*/*" in accepted or family in accepted

    async def body(self, limit: int) -> bytes | None:
        """Read the whole body; None if the client disconnected. Raises `Refused` (413) before reading one that is too large."""
        declared = self.headers.get(b"content-length", b"0")
        if int(declared) > limit:
            raise self._too_large(limit)
        event = await self.receive()
        # A server that is not ours may leave an empty body out.
        body = event.get("body", b"")
        if event["type"] == "http.request" and not event.get("more_body") and len(body) <= limit:
            self.note_admitted()
            return bytes(body)
        return await self._read_rest(event, limit)

    async def _read_rest(self, event: Any, limit: int) -> bytes | None:
        parts = bytearray()
        while event["type"] == "http.request":
            parts += event.get("body", b"")
            if len(parts) > limit:
                raise self._too_large(limit)
            if not event.get("more_body"):
                self.note_admitted()
                return bytes(parts)
            event = await self.receive()
        return None

    def _too_large(self, limit: int) -> Refused:
        if self._connection is not None:
            self._connection.note_too_large()
        return Refused(413, ErrorCode.INVALID_REQUEST, f"A message has at most {limit} bytes")

    def replay(self, body: bytes) -> Receive:
        """Return a `receive` that gives a body that was read already once more."""
        is_first = True

        async def receive_again() -> Any:
            nonlocal is_first
            if is_first:
                is_first = False
                return {"type": "http.request", "body": body, "more_body": False}
            return await self.receive()

        return receive_again


def _parse_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for name, value in raw:
        if name in headers and name in _SINGLE_HEADERS:
            # One component may use the first copy and another the last: with security headers that is an attack.
            raise Refused(400, ErrorCode.INVALID_REQUEST, f"The {name.decode('latin-1')} header appears more than once")
        # The parser leaves spaces after a value, which are not part of it (RFC 9110, 5.5).
        headers[name] = value.strip(b" \t")
    return headers
