"""One HTTP request as the endpoint sees it: headers folded, body bounded, nothing decided yet."""

from collections.abc import Awaitable, Callable, Iterable
from functools import cached_property
from typing import Any, Final

import anyio

from toolpost.contracts.errors import ErrorCode
from toolpost.discovery import EVERYTHING, View
from toolpost.endpoints.refusal import Refused

Scope = Any
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

DISCARD_S: Final = 10.0

_SINGLE_HEADERS: Final = frozenset(
    {b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-session-id", b"host", b"authorization"}
)


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
        self.send = send

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
        """Read the whole body, None if the client went away meanwhile."""
        event = await self.receive()
        if event["type"] == "http.request" and not event.get("more_body") and len(event["body"]) <= limit:
            return bytes(event["body"])
        return await self._rest(event, limit)

    async def _rest(self, event: Any, limit: int) -> bytes | None:
        parts = bytearray()
        while event["type"] == "http.request":
            parts += event["body"]
            if len(parts) > limit:
                await self._discard(event)
                raise Refused(413, ErrorCode.INVALID_REQUEST, f"A message has at most {limit} bytes")
            if not event.get("more_body"):
                return bytes(parts)
            event = await self.receive()
        return None

    async def _discard(self, event: Any) -> None:
        """Let the client finish, for a while: one that is cut off while it sends never reads why."""
        with anyio.move_on_after(DISCARD_S):
            while event["type"] == "http.request" and event.get("more_body"):
                event = await self.receive()

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


def _folded(raw: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for name, value in raw:
        if name in headers and name in _SINGLE_HEADERS:
            # Whoever reads the first copy and whoever reads the last would not agree.
            raise Refused(400, ErrorCode.INVALID_REQUEST, f"The {name.decode('latin-1')} header appears more than once")
        headers[name] = value
    return headers
