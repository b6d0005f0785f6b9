"""The head of a lean request, read once and known again by its bytes."""

from collections.abc import Mapping

import msgspec

from toolpost.endpoints.auth.roster import Admission
from toolpost.protocol import era


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What the headers say, as far as a lean call needs to know."""

    admission: Admission
    length: int
    is_modern: bool
    session_id: str
    method: str
    name: str | None
    takes_events: bool


_DIGITS = 12
_NOT_OURS = (b"transfer-encoding", b"expect", b"upgrade")


def split_head(raw: bytes) -> Mapping[bytes, bytes] | None:
    """Split plain header lines; None if one comes twice, or if they ask for more than a plain exchange."""
    headers: dict[bytes, bytes] = {}
    for line in raw.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        key = name.lower()
        if key in headers or key in _NOT_OURS:
            return None
        headers[key] = value.strip(b" \t")
    if headers.get(b"connection", b"keep-alive").lower() != b"keep-alive":
        return None
    length = headers.get(b"content-length", b"")
    return headers if length.isdigit() and len(length) <= _DIGITS else None


def head_of(headers: Mapping[bytes, bytes], admission: Admission) -> Head | None:
    """Judge headers for the lean lane; None leaves the request to whoever judges it at length."""
    accepted = headers.get(b"accept", b"*/*").lower()
    version = headers.get(b"mcp-protocol-version", b"").decode("latin-1")
    is_json = headers.get(b"content-type", b"").lower().startswith(b"application/json")
    if not is_json or (b"application/json" not in accepted and b"*/*" not in accepted):
        return None
    is_modern = version == era.MODERN.version
    if not is_modern and version and version not in era.HANDSHAKE_VERSIONS:
        return None
    return Head(
        admission=admission,
        length=int(headers[b"content-length"]),
        is_modern=is_modern,
        session_id=headers.get(b"mcp-session-id", b"").decode("latin-1"),
        method=headers.get(b"mcp-method", b"").decode("latin-1"),
        name=era.decode_header(headers.get(b"mcp-name")),
        takes_events=b"text/event-stream" in accepted or b"*/*" in accepted,
    )
