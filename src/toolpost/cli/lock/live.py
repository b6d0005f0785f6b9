"""The tools as they are now: every plugin loaded and every server started once, for whoever compares them with a lock."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import anyio

from toolpost.base.nearest import nearest_name
from toolpost.cli.gateway import open_quiet_app, without_store
from toolpost.contracts.compatibility import Definition
from toolpost.contracts.errors import NotFound, ToolpostError
from toolpost.contracts.lockfile import LockedTool, LockedTools
from toolpost.discovery import automatic_eval, automatic_mcp
from toolpost.providers import Provider
from toolpost.providers.servers import ServerProvider
from toolpost.running import App
from toolpost.settings import Config

START_S: Final = 60.0
"""How long a server may take to start; after that its tools are not known."""


@dataclass(frozen=True, kw_only=True)
class Live:
    """What is there, and what could not be looked at."""

    tools: LockedTools
    providers: Collection[str]
    missing: Mapping[str, str]
    """Plugins and servers whose tools are not known, with the reason."""


async def live_tools(config: Config, only: Collection[str] = ()) -> Live:
    """Look at everything once; with `only`, at what these plugins and servers bring."""
    async with open_quiet_app(without_store(config), holds=False) as app:
        missing = {plugin.name: "; ".join(plugin.problems) for plugin in app.host.plugins if plugin.state == "failed"}
        sources = {plugin.name for plugin in app.host.plugins if plugin.state != "disabled"} | set(
            app.servers.providers
        )
        sources |= {tool.source for tool in _own_tools(app).values()}
        _refuse_unknown(only, sources)
        wanted = [source for name, source in app.servers.providers.items() if not only or name in only]
        missing |= await _not_started(wanted)
        return Live(
            tools=restricted(_tools(app), only),
            providers=sources,
            missing={name: reason for name, reason in missing.items() if not only or name in only},
        )


def restricted(tools: LockedTools, only: Collection[str]) -> dict[str, LockedTool]:
    """Keep the tools of these sources; of all, if none is named."""
    return {name: tool for name, tool in tools.items() if not only or tool.source in only}


def _tools(app: App) -> LockedTools:
    return _own_tools(app) | _brought_tools(app)


def _own_tools(app: App) -> dict[str, LockedTool]:
    """Return those that stand for all others, where they are listed; without the servers' names, which are not their promise."""
    if app.config.discovery.mode == "all":
        return {}
    contracts = (automatic_eval.contract(), automatic_mcp.contract_for(()))
    return {own.name: LockedTool.of(automatic_mcp.OWNER, Definition.from_contract(own)) for own in contracts}


def _brought_tools(app: App) -> dict[str, LockedTool]:
    sources: list[Provider] = [*app.host.providers, *app.servers.providers.values()]
    return {
        name: LockedTool.of(tool.provider, Definition.from_contract(tool.contract))
        for source in sources
        for name, tool in {**source.tools, **source.quarantined}.items()
    }


async def _not_started(sources: Collection[ServerProvider]) -> dict[str, str]:
    """Wait for the servers; returns why, for those that do not start."""
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


def _refuse_unknown(wanted: Collection[str], known: Collection[str]) -> None:
    for name in wanted:
        if name not in known:
            near = nearest_name(name, known)
            hint = f"did you mean `{near}`?" if near else f"there are: {', '.join(sorted(known))}"
            raise NotFound(f"No server or plugin is called `{name}`.", hint=hint)
