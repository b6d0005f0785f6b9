"""Meeting a server: which era it speaks, what it can do, which tools it has."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import anyio
import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.base.version import __version__
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.protocol.era import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    HANDSHAKE_VERSIONS,
    LATEST_HANDSHAKE,
    MODERN,
    PROTOCOL_VERSION,
    SERVER_INFO,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from toolpost.protocol.shape import VALUE_LIMIT, BadShape, check_shape
from toolpost.upstreams.lists import ListReader
from toolpost.upstreams.server_requests import OFFERED_CAPABILITIES
from toolpost.upstreams.transport import ServerRefused, Transport, encode

CLIENT: Final = {"name": "toolpost", "version": __version__}
PROBE_LIMIT_S: Final = 5.0
"""How long a server may think about which era it is of; one that says nothing is greeted as those before it were."""

VERSION_LIMIT: Final = 128
DESCRIPTION_LIMIT: Final = 1_000
"""How many characters of a server's own description are kept. Every tool of the server is indexed with all of its words."""
PAGES_LIMIT: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class Negotiation:
    """What a server said about itself."""

    version: str
    is_modern: bool
    capabilities: JsonObject = field(default_factory=dict)
    info: JsonObject = field(default_factory=dict)
    instructions: str | None = None
    answers_probe: bool = True
    """Whether it answered when it was asked for its era, so that it may be asked again."""

    def has_list_changed(self, kind: str) -> bool:
        """Whether it says when its list of this kind changes: `tools`, `prompts` or `resources`."""
        return bool(_get_object(self.capabilities, kind).get("listChanged"))

    @property
    def build(self) -> str:
        """The version that the server gives itself, empty if it gives none that can be read on one line."""
        told: Json = self.info.get("version")
        return told[:VERSION_LIMIT] if isinstance(told, str) and told.isprintable() else ""

    @property
    def description(self) -> str:
        """The server's title, description and instructions as one text, cut to `DESCRIPTION_LIMIT`; empty if it has none.

        Untrusted: it feeds the search index and is shown to no model.
        """
        texts = (_get_text(self.info, "title"), _get_text(self.info, "description"), self.instructions)
        return "\n".join(text[:DESCRIPTION_LIMIT] for text in texts if text)[:DESCRIPTION_LIMIT]

    @property
    def has_subscriptions(self) -> bool:
        """Whether it tells of changes of single resources."""
        return bool(_get_object(self.capabilities, "resources").get("subscribe"))


async def negotiate(transport: Transport, *, probe_first: bool = True) -> Negotiation:
    """Agree on an era: the stateless one if the server knows it, else by a handshake."""
    if not probe_first:
        return await _initialize(transport, answers_probe=False)
    found: Negotiation | None = None
    answered = anyio.Event()
    shaken = anyio.CancelScope()

    async def probe() -> None:
        nonlocal found
        found = await _probe(transport)
        answered.set()
        if found is not None:
            shaken.cancel()

    negotiation: Negotiation | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(probe)
        with anyio.move_on_after(PROBE_LIMIT_S):
            await answered.wait()
        if found is None:
            with shaken:
                negotiation = await _greet_late(transport, lambda: found)
        tasks.cancel_scope.cancel()
    if found is not None:
        _use_stateless_era(transport)
    # One that was slow has said by now what it makes of the question; one that never answered is not asked again.
    return found or replace(_greeting_of(negotiation), answers_probe=answered.is_set())


async def _greet_late(transport: Transport, found: Callable[[], Negotiation | None]) -> Negotiation | None:
    """Shake hands; a server that was slow to start, not of another era, has meanwhile answered what it was asked first."""
    try:
        return await _initialize(transport, answers_probe=False)
    except (ServerRefused, UpstreamUnavailable):
        if found() is None:
            raise
        return None


def _greeting_of(negotiation: Negotiation | None) -> Negotiation:
    assert negotiation is not None, "whoever is not of the stateless era has shaken hands"
    return negotiation


async def refresh(transport: Transport, negotiation: Negotiation) -> Negotiation:
    """Ask a server of the stateless era again what it says of itself; another one, or one that refuses, said it once."""
    return (await _read_discovery(transport) if negotiation.is_modern else None) or negotiation


async def _probe(transport: Transport) -> Negotiation | None:
    """Ask as the stateless era does; None from a server that is not of it."""
    _use_stateless_era(transport)
    return await _read_discovery(transport)


async def _read_discovery(transport: Transport) -> Negotiation | None:
    try:
        found = _parse_object(await _discover(transport))
    except (ServerRefused, _InvalidAnswer):
        return None
    versions = found.get("supportedVersions")
    if not isinstance(versions, list) or MODERN.version not in versions:
        return None
    return Negotiation(
        version=MODERN.version,
        is_modern=True,
        capabilities=_get_object(found, "capabilities"),
        info=_get_object(_get_object(found, "_meta"), SERVER_INFO),
        instructions=_get_text(found, "instructions"),
    )


async def _discover(transport: Transport) -> bytes:
    """Ask once more if the server refuses the revision and then lists it: it knows the era, so a handshake would be wrong."""
    try:
        return await transport.request("server/discover")
    except ServerRefused as refusal:
        if refusal.code != UNSUPPORTED_PROTOCOL_VERSION or MODERN.version not in _supported_versions(refusal):
            raise
    return await transport.request("server/discover")


def _use_stateless_era(transport: Transport) -> None:
    envelope = {PROTOCOL_VERSION: MODERN.version, CLIENT_INFO: CLIENT, CLIENT_CAPABILITIES: {}}
    transport.use(envelope=envelope, headers={"mcp-protocol-version": MODERN.version})


async def _initialize(transport: Transport, *, answers_probe: bool) -> Negotiation:
    transport.use(envelope={}, headers={})
    agreed = await _request_initialize(transport)
    version = agreed.get("protocolVersion")
    if not isinstance(version, str) or version not in HANDSHAKE_VERSIONS:
        raise UpstreamUnavailable(f"it speaks MCP {version!r}, which is not known here")
    transport.use(envelope={}, headers={"mcp-protocol-version": version})
    await transport.notify("notifications/initialized")
    return Negotiation(
        version=version,
        is_modern=False,
        capabilities=_get_object(agreed, "capabilities"),
        info=_get_object(agreed, "serverInfo"),
        instructions=_get_text(agreed, "instructions"),
        answers_probe=answers_probe,
    )


async def _request_initialize(transport: Transport) -> JsonObject:
    """Offer the latest revision, and an older one to a server that refuses it and says what it takes."""
    try:
        return _parse_object(await transport.request("initialize", _write_initialize(LATEST_HANDSHAKE)))
    except ServerRefused as refusal:
        taken = _supported_versions(refusal)
        shared = [v for v in sorted(HANDSHAKE_VERSIONS, reverse=True) if v in taken]
        if not shared:
            raise
    return _parse_object(await transport.request("initialize", _write_initialize(shared[0])))


def _supported_versions(refusal: ServerRefused) -> list[Json]:
    taken = refusal.data.get("supported") if isinstance(refusal.data, dict) else None
    return taken if isinstance(taken, list) else []


def _write_initialize(version: str) -> bytes:
    return encode({"protocolVersion": version, "capabilities": OFFERED_CAPABILITIES, "clientInfo": CLIENT})[1:-1]


ToolsListener = Callable[[list[JsonObject], str, str], Awaitable[None]]
"""Takes the tools of a server, the version that it gives itself, and its description of itself."""


async def fetch_tools(transport: Transport, negotiation: Negotiation, server: str) -> list[JsonObject]:
    """List the tools as they came: no field lost, no order changed, none beyond the limits of `lists`."""
    if "tools" not in negotiation.capabilities:
        return []
    tools = ListReader(server, "tools")
    fields = b""
    for _ in range(PAGES_LIMIT):
        cursor = await tools.take(await transport.request("tools/list", fields))
        if cursor is None:
            return tools.items
        fields = b'"cursor":%b' % encode(cursor)
    raise UpstreamUnavailable("its list of tools has no end")


class _InvalidAnswer(UpstreamUnavailable):
    """The server's answer makes no sense."""


def _parse_object(raw: bytes, *, value_limit: int = VALUE_LIMIT) -> JsonObject:
    try:
        check_shape(raw, value_limit=value_limit)
        value: Any = msgspec.json.decode(raw)
    except BadShape as error:
        raise _InvalidAnswer(f"its answer {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _InvalidAnswer(f"its answer is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise _InvalidAnswer("its answer is not an object")
    return value


def _get_object(value: JsonObject, key: str) -> JsonObject:
    found: Json = value.get(key)
    return found if isinstance(found, dict) else {}


def _get_text(value: JsonObject, key: str) -> str | None:
    found: Json = value.get(key)
    return found if isinstance(found, str) else None
