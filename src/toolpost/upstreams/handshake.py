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
from toolpost.upstreams.server_requests import OFFERED
from toolpost.upstreams.wire import ServerRefused, Wire, encode

CLIENT: Final = {"name": "toolpost", "version": __version__}
PROBE_S: Final = 5.0
"""How long a server may think about which era it is of; one that says nothing is greeted as those before it were."""

BUILD_LIMIT: Final = 128
DESCRIPTION_LIMIT: Final = 1_000
"""How many characters of a server's own description are kept. Every tool of the server is indexed with all of its words."""
PAGES_LIMIT: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class Greeting:
    """What a server said about itself."""

    version: str
    is_modern: bool
    capabilities: JsonObject = field(default_factory=dict)
    info: JsonObject = field(default_factory=dict)
    instructions: str | None = None
    takes_probes: bool = True
    """Whether it answered when it was asked for its era, so that it may be asked again."""

    def tells_of(self, kind: str) -> bool:
        """Whether it says when its list of this kind changes: `tools`, `prompts` or `resources`."""
        return bool(_part(self.capabilities, kind).get("listChanged"))

    @property
    def build(self) -> str:
        """The version that the server gives itself, empty if it gives none that can be read on one line."""
        told: Json = self.info.get("version")
        return told[:BUILD_LIMIT] if isinstance(told, str) and told.isprintable() else ""

    @property
    def description(self) -> str:
        """The server's title, description and instructions as one text, cut to `DESCRIPTION_LIMIT`; empty if it has none.

        Untrusted: it feeds the search index and is shown to no model.
        """
        texts = (_text(self.info, "title"), _text(self.info, "description"), self.instructions)
        return "\n".join(text[:DESCRIPTION_LIMIT] for text in texts if text)[:DESCRIPTION_LIMIT]

    @property
    def takes_subscriptions(self) -> bool:
        """Whether it tells of changes of single resources."""
        return bool(_part(self.capabilities, "resources").get("subscribe"))


async def greet(wire: Wire, *, probes: bool = True) -> Greeting:
    """Agree on an era: the stateless one if the server knows it, else by a handshake."""
    if not probes:
        return await _shake_hands(wire, takes_probes=False)
    found: Greeting | None = None
    answered = anyio.Event()
    shaken = anyio.CancelScope()

    async def probe() -> None:
        nonlocal found
        found = await _ask_for_discovery(wire)
        answered.set()
        if found is not None:
            shaken.cancel()

    greeting: Greeting | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(probe)
        with anyio.move_on_after(PROBE_S):
            await answered.wait()
        if found is None:
            with shaken:
                greeting = await _greet_late(wire, lambda: found)
        tasks.cancel_scope.cancel()
    if found is not None:
        _speak_modern(wire)
    # One that was slow has said by now what it makes of the question; one that never answered is not asked again.
    return found or replace(_greeting_of(greeting), takes_probes=answered.is_set())


async def _greet_late(wire: Wire, found: Callable[[], Greeting | None]) -> Greeting | None:
    """Shake hands; a server that was slow to start, not of another era, has meanwhile answered what it was asked first."""
    try:
        return await _shake_hands(wire, takes_probes=False)
    except (ServerRefused, UpstreamUnavailable):
        if found() is None:
            raise
        return None


def _greeting_of(greeting: Greeting | None) -> Greeting:
    assert greeting is not None, "whoever is not of the stateless era has shaken hands"
    return greeting


async def refresh(wire: Wire, greeting: Greeting) -> Greeting:
    """Ask a server of the stateless era again what it says of itself; another one, or one that refuses, said it once."""
    return (await _read_discovery(wire) if greeting.is_modern else None) or greeting


async def _ask_for_discovery(wire: Wire) -> Greeting | None:
    """Ask as the stateless era does; None from a server that is not of it."""
    _speak_modern(wire)
    return await _read_discovery(wire)


async def _read_discovery(wire: Wire) -> Greeting | None:
    try:
        found = _object(await _discover(wire))
    except (ServerRefused, _Nonsense):
        return None
    versions = found.get("supportedVersions")
    if not isinstance(versions, list) or MODERN.version not in versions:
        return None
    return Greeting(
        version=MODERN.version,
        is_modern=True,
        capabilities=_part(found, "capabilities"),
        info=_part(_part(found, "_meta"), SERVER_INFO),
        instructions=_text(found, "instructions"),
    )


async def _discover(wire: Wire) -> bytes:
    """Ask once more if the server refuses the revision and then lists it: it knows the era, so a handshake would be wrong."""
    try:
        return await wire.request("server/discover")
    except ServerRefused as refusal:
        if refusal.code != UNSUPPORTED_PROTOCOL_VERSION or MODERN.version not in _versions_in(refusal):
            raise
    return await wire.request("server/discover")


def _speak_modern(wire: Wire) -> None:
    envelope = {PROTOCOL_VERSION: MODERN.version, CLIENT_INFO: CLIENT, CLIENT_CAPABILITIES: {}}
    wire.use(envelope=envelope, headers={"mcp-protocol-version": MODERN.version})


async def _shake_hands(wire: Wire, *, takes_probes: bool) -> Greeting:
    wire.use(envelope={}, headers={})
    agreed = await _ask_to_initialize(wire)
    version = agreed.get("protocolVersion")
    if not isinstance(version, str) or version not in HANDSHAKE_VERSIONS:
        raise UpstreamUnavailable(f"it speaks MCP {version!r}, which is not known here")
    wire.use(envelope={}, headers={"mcp-protocol-version": version})
    await wire.notify("notifications/initialized")
    return Greeting(
        version=version,
        is_modern=False,
        capabilities=_part(agreed, "capabilities"),
        info=_part(agreed, "serverInfo"),
        instructions=_text(agreed, "instructions"),
        takes_probes=takes_probes,
    )


async def _ask_to_initialize(wire: Wire) -> JsonObject:
    """Offer the latest revision, and an older one to a server that refuses it and says what it takes."""
    try:
        return _object(await wire.request("initialize", _offer(LATEST_HANDSHAKE)))
    except ServerRefused as refusal:
        taken = _versions_in(refusal)
        shared = [v for v in sorted(HANDSHAKE_VERSIONS, reverse=True) if v in taken]
        if not shared:
            raise
    return _object(await wire.request("initialize", _offer(shared[0])))


def _versions_in(refusal: ServerRefused) -> list[Json]:
    taken = refusal.data.get("supported") if isinstance(refusal.data, dict) else None
    return taken if isinstance(taken, list) else []


def _offer(version: str) -> bytes:
    return encode({"protocolVersion": version, "capabilities": OFFERED, "clientInfo": CLIENT})[1:-1]


Learn = Callable[[list[JsonObject], str, str], Awaitable[None]]
"""Takes the tools of a server, the version that it gives itself, and its description of itself."""


async def fetch_tools(wire: Wire, greeting: Greeting, server: str) -> list[JsonObject]:
    """List the tools as they came: no field lost, no order changed, none beyond the limits of `lists`."""
    if "tools" not in greeting.capabilities:
        return []
    tools = ListReader(server, "tools")
    fields = b""
    for _ in range(PAGES_LIMIT):
        cursor = await tools.take(await wire.request("tools/list", fields))
        if cursor is None:
            return tools.items
        fields = b'"cursor":%b' % encode(cursor)
    raise UpstreamUnavailable("its list of tools has no end")


class _Nonsense(UpstreamUnavailable):
    """The server's answer makes no sense."""


def _object(raw: bytes, *, value_limit: int = VALUE_LIMIT) -> JsonObject:
    try:
        check_shape(raw, value_limit=value_limit)
        value: Any = msgspec.json.decode(raw)
    except BadShape as error:
        raise _Nonsense(f"its answer {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _Nonsense(f"its answer is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise _Nonsense("its answer is not an object")
    return value


def _part(value: JsonObject, key: str) -> JsonObject:
    found: Json = value.get(key)
    return found if isinstance(found, dict) else {}


def _text(value: JsonObject, key: str) -> str | None:
    found: Json = value.get(key)
    return found if isinstance(found, str) else None
