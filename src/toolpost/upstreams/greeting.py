"""Meeting a server: which era it speaks, what it can do, which tools it has."""

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.contracts.ids import JsonObject
from toolpost.contracts.version import __version__
from toolpost.protocol.era import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    HANDSHAKE_VERSIONS,
    LATEST_HANDSHAKE,
    MODERN,
    PROTOCOL_VERSION,
)
from toolpost.upstreams.wire import ServerRefused, Wire, encode

CLIENT: Final = {"name": "toolpost", "version": __version__}
PAGES_LIMIT: Final = 1_000
TOOLS_LIMIT: Final = 20_000


@dataclass(frozen=True, kw_only=True)
class Greeting:
    """What a server said about itself."""

    version: str
    is_modern: bool
    capabilities: JsonObject = field(default_factory=dict)
    info: JsonObject = field(default_factory=dict)
    instructions: str | None = None


async def greet(wire: Wire) -> Greeting:
    """Agree on an era: the stateless one if the server knows it, else by a handshake."""
    envelope = {PROTOCOL_VERSION: MODERN.version, CLIENT_INFO: CLIENT, CLIENT_CAPABILITIES: {}}
    wire.use(envelope=envelope, headers={"mcp-protocol-version": MODERN.version})
    try:
        discovered = _object(await wire.request("server/discover"))
    except ServerRefused:
        return await _shake_hands(wire)
    if MODERN.version not in discovered.get("supportedVersions", ()):
        return await _shake_hands(wire)
    info = (discovered.get("_meta") or {}).get("io.modelcontextprotocol/serverInfo") or {}
    return Greeting(
        version=MODERN.version,
        is_modern=True,
        capabilities=discovered.get("capabilities") or {},
        info=info,
        instructions=discovered.get("instructions"),
    )


async def _shake_hands(wire: Wire) -> Greeting:
    wire.use(envelope={}, headers={})
    offer = {"protocolVersion": LATEST_HANDSHAKE, "capabilities": {}, "clientInfo": CLIENT}
    try:
        agreed = _object(await wire.request("initialize", encode(offer)[1:-1]))
    except ServerRefused as refusal:
        raise UpstreamUnavailable(f"The server refused the handshake: {refusal.message}") from refusal
    version = agreed.get("protocolVersion")
    if version not in HANDSHAKE_VERSIONS:
        raise UpstreamUnavailable(f"The server speaks MCP {version!r}, which is not known here.")
    wire.use(envelope={}, headers={"mcp-protocol-version": version})
    await wire.notify("notifications/initialized")
    return Greeting(
        version=version,
        is_modern=False,
        capabilities=agreed.get("capabilities") or {},
        info=agreed.get("serverInfo") or {},
        instructions=agreed.get("instructions"),
    )


async def fetch_tools(wire: Wire, greeting: Greeting) -> list[JsonObject]:
    """List every tool as it came: no field lost, no order changed."""
    if "tools" not in greeting.capabilities:
        return []
    found: list[JsonObject] = []
    cursor: Any = None
    for _ in range(PAGES_LIMIT):
        fields = b"" if cursor is None else b'"cursor":%b' % encode(cursor)
        page = _object(await wire.request("tools/list", fields))
        tools = page.get("tools")
        found += [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
        cursor = page.get("nextCursor")
        if cursor is None or len(found) > TOOLS_LIMIT:
            return found
    raise UpstreamUnavailable("The server's list of tools has no end.")


def _object(raw: bytes) -> JsonObject:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamUnavailable(f"The server's answer is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UpstreamUnavailable("The server's answer is not an object.")
    return value
