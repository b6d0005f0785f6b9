"""The three states of the tools that `lock`, `check` and `diff` compare: in the lock file, live, and pinned.

Live means that every plugin is loaded and every server started once. A pin is a definition as a server first listed it, read from
the store. All three are `{tool name: LockedTool}`; what differs between two of them is decided in `toolpost.contracts.lockfile`.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import click
import msgspec

from toolpost.base.caller import OPERATOR
from toolpost.cli.clients.safe_files import write_atomically
from toolpost.cli.quiet_app import open_quiet_app, without_store
from toolpost.contracts.compatibility import Definition
from toolpost.contracts.compatibility.definition import name_instructions
from toolpost.contracts.errors import BadLock, NotFound, ToolpostError
from toolpost.contracts.lockfile import LockedTool, LockedTools, lock_text, parse_lock
from toolpost.contracts.skills import EXTENSION
from toolpost.discovery.automatic import OWNER, eval_contract, mcp_contract
from toolpost.providers import Provider
from toolpost.providers.extensions import find_declared
from toolpost.providers.relay import Relay, RelayProvider
from toolpost.providers.requester import Requester
from toolpost.providers.server_provider import ServerProvider
from toolpost.refusals import Refusals
from toolpost.settings import Config
from toolpost.settings.lock import read_lock_text
from toolpost.settings.section import credential_users
from toolpost.store import open_store, store_exists
from toolpost.store.known_tools import Pins
from toolpost.terminal.failures import suggest, warn

Result = TypeVar("Result")

START_S: Final = 60.0
"""How long a server may take to start before its tools count as missing."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

lock_option: Decorator = click.option(
    "--lock",
    "lock_path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The lock file (default: toolpost.lock beside the configuration).",
)

only_option: Decorator = click.option(
    "--server", "only", multiple=True, metavar="NAME", help="Only the tools of this server or plugin; repeatable."
)


class LockFile:
    """A lock file as it was when it was read; `tools` is None if there is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = read_lock_text(path)
        self.tools: dict[str, LockedTool] | None = None
        if self.text is not None:
            self.tools = parse_lock(self.text, name=path.name)

    @classmethod
    def of(cls, config: Config, path: Path | None) -> "LockFile":
        """Read the file at `path`, else the project's."""
        return cls(path if path is not None else config.lock_path)

    def require_tools(self) -> dict[str, LockedTool]:
        """Return the locked tools; raises `BadLock` if there is no lock."""
        if self.tools is None:
            raise BadLock(
                f"Lock file not found: {self.path}.",
                hint="run `toolpost lock` to create it, and commit it with the configuration",
            )
        return self.tools

    def replace(self, tools: LockedTools) -> bool:
        """Write these tools atomically; returns False if the file already says so."""
        text = lock_text(tools)
        if text == self.text:
            return False
        write_atomically(self.path, text, before=self.text)
        return True


@dataclass(frozen=True, kw_only=True)
class LiveTools:
    """The tools as they are now, in the form in which a lock file keeps them."""

    tools: LockedTools
    missing: Mapping[str, str]
    """Plugins and servers whose tools could not be listed, with the reason."""
    loaded: frozenset[str] | None = None
    """The sources that are known; None if all are. A plugin that does not load does not tell its name either: then tools of
    any other source may be its tools."""

    def is_comparable(self, tool: LockedTool) -> bool:
        """Whether it can be said what became of a locked tool."""
        return tool.source not in self.missing and (self.loaded is None or tool.source in self.loaded)


async def load_live_tools(config: Config, only: Collection[str] = ()) -> LiveTools:
    """Load every plugin and start every server once; with `only`, the plugins and servers of these names."""
    async with open_quiet_app(without_store(config), enforces_lock=False, credentials_of=config) as app:
        missing = {
            plugin.name: "; ".join(plugin.problems) for plugin in app.plugin_host.plugins if plugin.state == "failed"
        }
        plugins = {plugin.name for plugin in app.plugin_host.plugins if plugin.state != "disabled"}
        own = {tool.source for tool in _list_gateway_tools(app.config).values()}
        known = plugins | set(app.servers.providers) | own
        for name in only:
            if name not in known:
                hint = suggest(name, known, f"configured: {', '.join(sorted(known))}")
                raise NotFound(f"Unknown server or plugin `{name}`.", hint=hint)
        selected = [provider for name, provider in app.servers.providers.items() if not only or name in only]
        missing |= await _wait_for_servers(selected)
        await list_skills(selected, app.gateway.refusals)
        providers: list[Provider] = [*app.plugin_host.providers, *app.servers.providers.values()]
        is_nameless = not missing.keys().isdisjoint(config.plugins.load)
        return LiveTools(
            tools=filter_by_source(list_tools(app.config, providers), only),
            missing={name: reason for name, reason in missing.items() if not only or name in only},
            loaded=frozenset(known) if is_nameless else None,
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


def list_tools(config: Config, providers: Iterable[Provider]) -> dict[str, LockedTool]:
    """Return all tools, instructions and skills as they are now, quarantined ones and the gateway's own among them."""
    tools: dict[str, LockedTool] = {}
    for provider in providers:
        for name, tool in {**provider.tools, **provider.quarantined}.items():
            tools[name] = LockedTool.of(tool.provider, Definition.from_contract(tool.contract))
        if isinstance(provider, ServerProvider) and provider.profile.instructions:
            definition = provider.define(name_instructions(provider.name))
            tools[definition.name] = LockedTool.of(provider.name, definition)
        if isinstance(provider, ServerProvider):
            tools |= {name: LockedTool.of(provider.name, one) for name, one in provider.skills.definitions.items()}
    return _list_gateway_tools(config) | tools


def _list_gateway_tools(config: Config) -> dict[str, LockedTool]:
    """Return `automatic_mcp` and `automatic_eval` where they are listed, without the server names in their descriptions."""
    if config.discovery.mode == "all":
        return {}
    contracts = (eval_contract(), mcp_contract(()))
    return {own.name: LockedTool.of(OWNER, Definition.from_contract(own)) for own in contracts}


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


async def read_pins(pins: Pins, servers: Iterable[str], on_problem: Callable[[str], None]) -> dict[str, LockedTool]:
    """Read the pins of these servers; one that cannot be read is told to `on_problem`, and left out."""
    found: dict[str, LockedTool] = {}
    for server in servers:
        for name, written in (await pins.of_server(server)).items():
            try:
                found[name] = LockedTool.of(server, Definition.from_json(written))
            except msgspec.ValidationError as error:
                on_problem(f"the pin of `{name}` cannot be read: {error}")
    return found
