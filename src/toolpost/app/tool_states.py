"""Two of the three states of the tools that `lock`, `check` and `diff` compare: live and pinned.

Live means that every plugin is loaded and every server started once. A pin is a definition as a server first listed it, read from
the store. Both, and the tools of the lock file (`admin.lock_file`), are `{tool name: LockedTool}`; the differences of two of them
are found in `toolpost.contracts.lockfile`.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import anyio

from toolpost.admin.lock_file import list_gateway_tools, list_tools, read_pins
from toolpost.app.quiet import open_quiet_app, without_store
from toolpost.base.caller import OPERATOR
from toolpost.contracts.errors import NotFound, ToolpostError
from toolpost.contracts.lockfile import LockedTool, LockedTools
from toolpost.contracts.skills import EXTENSION
from toolpost.providers import Provider
from toolpost.providers.extensions import find_declared
from toolpost.providers.relay import Relay, RelayProvider
from toolpost.providers.requester import Requester
from toolpost.providers.server_provider import ServerProvider
from toolpost.refusals import Refusals
from toolpost.settings import Config
from toolpost.settings.section import credential_users
from toolpost.store import open_store, store_exists
from toolpost.store.known_tools import Pins
from toolpost.terminal.failures import suggest, warn

Result = TypeVar("Result")

START_S: Final = 60.0
"""How long a server may take to start before its tools count as missing."""


@dataclass(frozen=True, kw_only=True)
class LiveTools:
    """The tools as they are now, in the form in which a lock file keeps them."""

    tools: LockedTools
    missing: Mapping[str, str]
    """Plugins and servers whose tools could not be listed, with the reason."""
    known_sources: frozenset[str] | None = None
    """The sources that are known; None if all are. A plugin that does not load does not tell its name either: then tools of
    any other source may be its tools."""

    def is_comparable(self, tool: LockedTool) -> bool:
        """Whether it can be said what became of a locked tool."""
        return tool.source not in self.missing and (self.known_sources is None or tool.source in self.known_sources)


async def load_live_tools(config: Config, only: Collection[str] = ()) -> LiveTools:
    """Load every plugin and start every server once; with `only`, the plugins and servers of these names."""
    async with open_quiet_app(without_store(config), enforces_lock=False, credentials_of=config) as app:
        missing = {
            plugin.name: "; ".join(plugin.problems) for plugin in app.plugins.plugins if plugin.state == "failed"
        }
        plugins = {plugin.name for plugin in app.plugins.plugins if plugin.state != "disabled"}
        own = {tool.source for tool in list_gateway_tools(app.config).values()}
        known = plugins | set(app.servers.providers) | own
        for name in only:
            if name not in known:
                hint = suggest(name, known, f"configured: {', '.join(sorted(known))}")
                raise NotFound(f"Unknown server or plugin `{name}`.", hint=hint)
        selected = [provider for name, provider in app.servers.providers.items() if not only or name in only]
        missing |= await _wait_for_servers(selected)
        await list_skills(selected, app.gateway.refusals)
        providers: list[Provider] = [*app.plugins.providers, *app.servers.providers.values()]
        is_nameless = not missing.keys().isdisjoint(config.plugins.load)
        return LiveTools(
            tools=filter_by_source(list_tools(app.config, providers), only),
            missing={name: reason for name, reason in missing.items() if not only or name in only},
            known_sources=frozenset(known) if is_nameless else None,
        )


async def list_skills(sources: Iterable[ServerProvider], refusals: Refusals) -> None:
    """Have the servers that declare skills list them, so that `skills` has their definitions."""
    skilled: dict[str, RelayProvider] = {
        one.name: one for one in sources if EXTENSION in find_declared(one, "").get("extensions", {})
    }
    await Relay(skilled, refusals=refusals).list_skills(Requester(caller=OPERATOR))


def filter_by_source(tools: LockedTools, only: Collection[str]) -> dict[str, LockedTool]:
    """Keep the tools of these plugins and servers; an empty `only` keeps all."""
    return {name: tool for name, tool in tools.items() if not only or tool.source in only}


async def _wait_for_servers(sources: Collection[ServerProvider]) -> dict[str, str]:
    """Wait for servers to list their tools; returns the reason for each that did not."""
    reasons: dict[str, str] = {}

    async def wait_for(source: ServerProvider) -> None:
        reasons[source.name] = f"it did not start within {START_S:g} s"
        with anyio.move_on_after(START_S):
            try:
                await source.supervisor.ensure_ready()
            except ToolpostError as error:
                reasons[source.name] = error.message
            else:
                del reasons[source.name]

    async with anyio.create_task_group() as tasks:
        for source in sources:
            if source.definitions is None:
                tasks.start_soon(wait_for, source)
    return reasons


async def read_pinned_tools(config: Config) -> dict[str, LockedTool]:
    """Read the pins of the configured servers and APIs; a store that cannot be read is a warning, and no pins."""
    return await _read_store(config, lambda pins: read_pins(pins, credential_users(config), warn))


async def read_recent_names(config: Config, age_s: float) -> dict[str, list[str]]:
    """Read the names that each configured server first listed within so many seconds."""

    async def read(pins: Pins) -> dict[str, list[str]]:
        return {server: await pins.list_recent(server, age_s) for server in config.servers}

    return await _read_store(config, read)


async def _read_store(config: Config, read: Callable[[Pins], Awaitable[dict[str, Result]]]) -> dict[str, Result]:
    try:
        if config.store_url == "sqlite::memory:" or not await store_exists(config.store_url):
            return {}
        async with open_store(config.store_url) as store:
            return await read(store.pins)
    except ToolpostError as error:
        warn(f"cannot read the pins: {error.message}")
        return {}
