"""Negotiation with a server: which era and revision it speaks, its capabilities, and its tools.

A server is asked `server/discover` first, which only the stateless era has. Older servers refuse it, or do not answer at all, so
after `PROBE_LIMIT_S` a handshake is tried while the probe is still open: a server that was only slow to start answers the probe
then, and its answer wins.
"""

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
    PROTOCOL_VERSION,
    SERVER_INFO,
    STATELESS,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from toolpost.protocol.extensions import merge_extensions, select_extensions
from toolpost.protocol.shape import VALUE_LIMIT, BadShape, check_shape
from toolpost.upstreams.lists import ListReader
from toolpost.upstreams.report import INSTRUCTIONS_LIMIT, ServerProfile
from toolpost.upstreams.server_requests import OFFERED_CAPABILITIES
from toolpost.upstreams.transport import ServerRefused, Transport, UpstreamRequest, encode

CLIENT: Final = {"name": "toolpost", "version": __version__}
PROBE_LIMIT_S: Final = 5.0
"""How long a server may take to answer the probe before a handshake is tried too."""

VERSION_LIMIT: Final = 128
DESCRIPTION_LIMIT: Final = 1_000
"""How many characters of a server's own description are kept. Every tool of the server is indexed with all of its words."""
PAGES_LIMIT: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class Negotiation:
    """The agreement with a server, and its description of itself."""

    version: str
    is_stateless: bool
    capabilities: JsonObject = field(default_factory=dict)
    info: JsonObject = field(default_factory=dict)
    instructions: str | None = None
    answers_probe: bool = True
    """Whether it answered the probe, if only by refusing it. One that did not is not probed at its next start."""

    def has_list_changed(self, kind: str) -> bool:
        """Whether it announces changes of its list of this kind: `tools`, `prompts` or `resources`."""
        return bool(_get_object(self.capabilities, kind).get("listChanged"))

    @property
    def build(self) -> str:
        """The version in the server's own info; empty if there is none, or none that is printable on one line."""
        version: Json = self.info.get("version")
        return version[:VERSION_LIMIT] if isinstance(version, str) and version.isprintable() else ""

    @property
    def description(self) -> str:
        """The server's title, description and instructions as one text, cut to `DESCRIPTION_LIMIT`; empty if it has none.

        Untrusted: it feeds the search index and is shown to no model.
        """
        texts = (_get_text(self.info, "title"), _get_text(self.info, "description"), self.instructions)
        return "\n".join(text[:DESCRIPTION_LIMIT] for text in texts if text)[:DESCRIPTION_LIMIT]

    @property
    def profile(self) -> ServerProfile:
        return ServerProfile(
            description=self.description,
            instructions=(self.instructions or "")[:INSTRUCTIONS_LIMIT].strip(),
            extensions=select_extensions(self.capabilities),
        )

    @property
    def has_subscriptions(self) -> bool:
        """Whether single resources can be subscribed to."""
        return bool(_get_object(self.capabilities, "resources").get("subscribe"))


async def negotiate(
    transport: Transport, *, probe_first: bool = True, declared: JsonObject | None = None
) -> Negotiation:
    """Agree on an era: the stateless one if the server knows it, else by a handshake.

    `declared` are the client's extensions that a handshake declares, as `select_extensions` returns them.
    Raises `ServerRefused` or `UpstreamUnavailable` if neither is agreed.
    """
    if not probe_first:
        return await _initialize(transport, declared or {}, answers_probe=False)
    stateless: Negotiation | None = None
    answered = anyio.Event()
    initializing = anyio.CancelScope()

    async def probe() -> None:
        nonlocal stateless
        _use_stateless_era(transport)
        stateless = await _read_discovery(transport)
        answered.set()
        if stateless is not None:
            initializing.cancel()

    by_handshake: Negotiation | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(probe)
        with anyio.move_on_after(PROBE_LIMIT_S):
            await answered.wait()
        if stateless is None:
            with initializing:
                try:
                    by_handshake = await _initialize(transport, declared or {}, answers_probe=False)
                except (ServerRefused, UpstreamUnavailable):
                    # A server of the stateless era that was slow to start refuses the handshake, and answers the probe, over
                    # HTTP perhaps later.
                    with anyio.move_on_after(PROBE_LIMIT_S):
                        await answered.wait()
                    if stateless is None:
                        raise
        tasks.cancel_scope.cancel()
    if stateless is not None:
        # The handshake that was tried beside it has set the transport to its own era.
        _use_stateless_era(transport)
        return stateless
    assert by_handshake is not None, "without the stateless era, the handshake was made or has raised"
    return replace(by_handshake, answers_probe=answered.is_set())


async def refresh(transport: Transport, negotiation: Negotiation) -> Negotiation:
    """Discover a server of the stateless era again; returns what is known already for any other, and if it refuses."""
    return (await _read_discovery(transport) if negotiation.is_stateless else None) or negotiation


async def _read_discovery(transport: Transport) -> Negotiation | None:
    """Ask `server/discover`; None from a server that is not of the stateless era."""
    try:
        found = _parse_object(await _discover(transport))
    except (ServerRefused, _InvalidAnswer):
        return None
    versions = found.get("supportedVersions")
    if not isinstance(versions, list) or STATELESS.version not in versions:
        return None
    return Negotiation(
        version=STATELESS.version,
        is_stateless=True,
        capabilities=_get_object(found, "capabilities"),
        info=_get_object(_get_object(found, "_meta"), SERVER_INFO),
        instructions=_get_text(found, "instructions"),
    )


async def _discover(transport: Transport) -> bytes:
    try:
        return await transport.request(UpstreamRequest("server/discover"))
    except ServerRefused as refusal:
        # A server that refuses the revision and lists it as supported knows the era: asked again, not by a handshake.
        if refusal.code != UNSUPPORTED_PROTOCOL_VERSION or STATELESS.version not in _supported_versions(refusal):
            raise
    return await transport.request(UpstreamRequest("server/discover"))


def _use_stateless_era(transport: Transport) -> None:
    # For requests that are no client's, such as lists; a call declares what its own client has.
    declared = {"extensions": OFFERED_CAPABILITIES["extensions"]}
    request_meta = {PROTOCOL_VERSION: STATELESS.version, CLIENT_INFO: CLIENT, CLIENT_CAPABILITIES: declared}
    transport.use(request_meta=request_meta, headers={"mcp-protocol-version": STATELESS.version})


async def _initialize(transport: Transport, declared: JsonObject, *, answers_probe: bool) -> Negotiation:
    transport.use(request_meta={}, headers={})
    agreed = await _request_initialize(transport, merge_extensions([select_extensions(OFFERED_CAPABILITIES), declared]))
    version = agreed.get("protocolVersion")
    if not isinstance(version, str) or version not in HANDSHAKE_VERSIONS:
        raise UpstreamUnavailable(f"it speaks MCP {version!r}, which is not supported")
    transport.use(request_meta={}, headers={"mcp-protocol-version": version})
    await transport.notify("notifications/initialized")
    return Negotiation(
        version=version,
        is_stateless=False,
        capabilities=_get_object(agreed, "capabilities"),
        info=_get_object(agreed, "serverInfo"),
        instructions=_get_text(agreed, "instructions"),
        answers_probe=answers_probe,
    )


async def _request_initialize(transport: Transport, declared: JsonObject) -> JsonObject:
    """Offer the latest revision, then the latest one that the server lists in its refusal."""
    try:
        return _parse_object(await transport.request(_make_initialize(LATEST_HANDSHAKE, declared)))
    except ServerRefused as refusal:
        supported = _supported_versions(refusal)
        shared = [v for v in sorted(HANDSHAKE_VERSIONS, reverse=True) if v in supported]
        if not shared:
            raise
    return _parse_object(await transport.request(_make_initialize(shared[0], declared)))


def _supported_versions(refusal: ServerRefused) -> list[Json]:
    supported = refusal.data.get("supported") if isinstance(refusal.data, dict) else None
    return supported if isinstance(supported, list) else []


def _make_initialize(version: str, declared: JsonObject) -> UpstreamRequest:
    capabilities = OFFERED_CAPABILITIES | declared
    params = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": CLIENT}
    return UpstreamRequest("initialize", encode(params)[1:-1])


ToolsListener = Callable[[list[JsonObject], str, ServerProfile], Awaitable[None]]
"""Takes the tools of a server, its own version, and what else it says about itself."""


async def fetch_tools(transport: Transport, negotiation: Negotiation, server: str) -> list[JsonObject]:
    """List the tools with all their fields, in their order, up to the limits of `lists`; empty without the capability."""
    if "tools" not in negotiation.capabilities:
        return []
    tools = ListReader(server, "tools")
    fields = b""
    for _ in range(PAGES_LIMIT):
        cursor = await tools.take(await transport.request(UpstreamRequest("tools/list", fields)))
        if cursor is None:
            return tools.items
        fields = b'"cursor":%b' % encode(cursor)
    raise UpstreamUnavailable("its list of tools does not end")


class _InvalidAnswer(UpstreamUnavailable):
    pass


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
