"""The head of a request that the connection answers itself: parsed once, and recognized by its bytes when it comes again."""

from collections.abc import Mapping

import msgspec

from toolpost.endpoints.auth.roster import Admission
from toolpost.protocol import era


class RequestHead(msgspec.Struct, frozen=True, kw_only=True):
    """The headers of a plain request, authenticated and parsed."""

    admission: Admission
    length: int
    is_stateless: bool
    session_id: str
    mcp_method: str
    """The header `Mcp-Method`; empty without one."""
    mcp_name: str | None
    """The header `Mcp-Name`, decoded; None without one."""
    takes_events: bool
    trace_headers: Mapping[bytes, bytes] | None = None
    """`traceparent` and `tracestate`, if there are any and telemetry is on."""


_LENGTH_DIGITS = 12
_NOT_PLAIN = (b"transfer-encoding", b"expect", b"upgrade")


def split_head(raw: bytes) -> Mapping[bytes, bytes] | None:
    """Split header lines; None if one comes twice, or if they ask for more than a plain exchange (chunks, upgrades, close)."""
    headers: dict[bytes, bytes] = {}
    for line in raw.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        key = name.lower()
        if key in headers or key in _NOT_PLAIN:
            return None
        headers[key] = value.strip(b" \t")
    if headers.get(b"connection", b"keep-alive").lower() != b"keep-alive":
        return None
    length = headers.get(b"content-length", b"")
    return headers if length.isdigit() and len(length) <= _LENGTH_DIGITS else None


def parse_head(headers: Mapping[bytes, bytes], admission: Admission, *, with_trace: bool = False) -> RequestHead | None:
    """Parse the headers of a plain request; None leaves it to the ASGI application, which reports what is wrong."""
    accepted = headers.get(b"accept", b"*/*").lower()
    version = headers.get(b"mcp-protocol-version", b"").decode("latin-1")
    is_json = headers.get(b"content-type", b"").lower().startswith(b"application/json")
    if not is_json or (b"application/json" not in accepted and b"*/*" not in accepted):
        return None
    is_stateless = version == era.STATELESS.version
    if not is_stateless and version and version not in era.HANDSHAKE_VERSIONS:
        return None
    return RequestHead(
        admission=admission,
        length=int(headers[b"content-length"]),
        is_stateless=is_stateless,
        session_id=headers.get(b"mcp-session-id", b"").decode("latin-1"),
        mcp_method=headers.get(b"mcp-method", b"").decode("latin-1"),
        mcp_name=era.decode_header(headers.get(b"mcp-name")),
        takes_events=b"text/event-stream" in accepted or b"*/*" in accepted,
        trace_headers=_select_trace_headers(headers) if with_trace else None,
    )


def _select_trace_headers(headers: Mapping[bytes, bytes]) -> Mapping[bytes, bytes] | None:
    return {key: headers[key] for key in (b"traceparent", b"tracestate") if key in headers} or None
