"""Which revision of MCP a request speaks, and whether its `_meta` and headers agree with its body.

The rules are those of the official SDK (`mcp.shared.inbound`), implemented again because importing it takes over a second of
start-up; a test compares the two, rule by rule.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from toolpost.base.ids import JsonObject
from toolpost.protocol.rpc import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, ProtocolError

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"

HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022

STATUS_OF: Final[Mapping[int, int]] = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_PROTOCOL_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
"""The HTTP status of a JSON-RPC error in the stateless era; 200 for all other codes."""


@dataclass(frozen=True, kw_only=True)
class Revision:
    """One released revision of MCP, and what its clients understand."""

    version: str
    is_stateless: bool = False
    has_structured_content: bool = True
    unknown_fields: frozenset[str] = frozenset()
    """Fields of a tool definition that were added later, and are not sent to its clients."""


# `_meta` of a definition was added later too (2025-06-18). It is sent all the same: every revision allows further fields
# in a definition, and every client should get `schemaVersion`, which is in it.
_LATER = frozenset({"title", "outputSchema"})

REVISIONS: Final[Mapping[str, Revision]] = {
    revision.version: revision
    for revision in (
        Revision(
            version="2024-11-05",
            has_structured_content=False,
            unknown_fields=_LATER | frozenset({"annotations"}),
        ),
        Revision(version="2025-03-26", has_structured_content=False, unknown_fields=_LATER),
        Revision(version="2025-06-18"),
        Revision(version="2025-11-25"),
        Revision(version="2026-07-28", is_stateless=True),
    )
}
STATELESS: Final = REVISIONS["2026-07-28"]
LATEST_HANDSHAKE: Final = "2025-11-25"
HANDSHAKE_VERSIONS: Final = frozenset(version for version, known in REVISIONS.items() if not known.is_stateless)


_BATCHED: Final = "2025-03-26"
"""The one revision with JSON-RPC batches, which are not served: its clients are offered the revision before, which they know."""


def agree_version(requested: object) -> Revision:
    """Return the revision that a handshake agrees on, given what the client requested."""
    if requested == _BATCHED:
        return REVISIONS["2024-11-05"]
    revision = REVISIONS.get(requested) if isinstance(requested, str) else None
    return REVISIONS[LATEST_HANDSHAKE] if revision is None or revision.is_stateless else revision


def has_stateless_envelope(meta: JsonObject) -> bool:
    """Return whether a request names its own revision, as the stateless era requires."""
    return PROTOCOL_VERSION in meta


def check_envelope_keys(meta: JsonObject, *, request_id: bytes) -> None:
    """Raise `ProtocolError` if the `_meta` of a request lacks a required key."""
    if missing := [key for key in (PROTOCOL_VERSION, CLIENT_CAPABILITIES) if key not in meta]:
        raise ProtocolError(
            INVALID_PARAMS, f"params._meta lacks the required {' and '.join(missing)}", request_id=request_id
        )


def check_stateless_envelope(meta: JsonObject, *, request_id: bytes) -> None:
    """Raise `ProtocolError` if the `_meta` of a request lacks a required key or names a revision that is not served."""
    check_envelope_keys(meta, request_id=request_id)
    version = meta[PROTOCOL_VERSION]
    if not isinstance(version, str):
        raise ProtocolError(INVALID_PARAMS, f"params._meta {PROTOCOL_VERSION} must be a string", request_id=request_id)
    if version != STATELESS.version:
        raise ProtocolError(
            UNSUPPORTED_PROTOCOL_VERSION,
            f"Protocol version {version[:64]} is not served in this era",
            data={"supported": [STATELESS.version], "requested": version[:64]},
            request_id=request_id,
        )


def check_stateless_headers(
    headers: Mapping[bytes, bytes], *, meta: JsonObject, method: str, name: str | None, request_id: bytes
) -> None:
    """Raise `ProtocolError` if headers differ from the body: a proxy would have routed by wrong values."""
    version = meta.get(PROTOCOL_VERSION)
    for header, received, expected in (
        (b"mcp-protocol-version", _text(headers.get(b"mcp-protocol-version")), version),
        (b"mcp-method", _text(headers.get(b"mcp-method")), method),
        (b"mcp-name", decode_header(headers.get(b"mcp-name")), name),
    ):
        if header == b"mcp-name" and name is None:
            continue
        if received is None or received != expected:
            raise ProtocolError(
                HEADER_MISMATCH,
                f"The {header.decode()} header does not match the body",
                request_id=request_id,
            )


def decode_header(raw: bytes | None) -> str | None:
    """Decode a header value, which is wrapped as `=?base64?…?=` if it is not plain ASCII; None if it is malformed."""
    if raw is None:
        return None
    if raw.startswith(b"=?base64?") and raw.endswith(b"?="):
        try:
            decoded = base64.b64decode(raw[9:-2], validate=True)
            return decoded.decode() if base64.b64encode(decoded) == raw[9:-2] else None
        except (binascii.Error, UnicodeDecodeError):
            return None
    return _text(raw)


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("latin-1")
