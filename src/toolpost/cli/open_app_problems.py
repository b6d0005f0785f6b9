"""What commands tell of a gateway inside this process: what failed in it, its tools, and their names for completion."""

from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from toolpost.app import App
from toolpost.app.quiet import LEARN_LIMIT_S, open_quiet_app, without_store
from toolpost.base.ids import PluginName
from toolpost.contracts.errors import CapabilityMissing, PluginFailed, UnknownTool, UpstreamUnavailable
from toolpost.contracts.names import tool_names
from toolpost.discovery.catalog import Catalog
from toolpost.manifest import bundled_plugins
from toolpost.providers import ProvidedTool
from toolpost.settings import Config
from toolpost.store import open_store, store_exists
from toolpost.terminal import ExitCode, run_async, warn
from toolpost.terminal.options import (
    describe_unused_client_file,
    find_unused_client_file,
    load_cli_config,
    named_plugins,
)
from toolpost.upstreams.report import ServerReport
from toolpost.upstreams.spec import ServerSpec


def require_named_plugins(app: App) -> None:
    """Raise `PluginFailed` for a plugin that the command line names and that failed: the command is about it."""
    named = named_plugins()
    for plugin in app.plugins.plugins:
        if plugin.state == "failed" and not named.isdisjoint((plugin.reference, plugin.name)):
            raise PluginFailed("; ".join(plugin.problems))


def failed_servers(app: App) -> dict[str, ServerReport]:
    """Return the reports of servers that have listed no tools."""
    return {
        name: source.supervisor.report() for name, source in app.servers.providers.items() if source.definitions is None
    }


def problems_of(app: App) -> list[str]:
    """Describe plugins and servers that failed and tools that are quarantined, each with its reason."""
    failed = [problem for plugin in app.plugins.plugins for problem in plugin.problems]
    failed += [failure_of(report) for report in failed_servers(app).values()]
    return failed + [
        f"`{name}` is quarantined: it changed since it was {source.statuses[name].since}; `toolpost diff` explains the change"
        for source in app.servers.watched
        for name in source.quarantined
    ]


def failure_of(report: ServerReport) -> str:
    """Describe in one line why a server has no tools, and what to do."""
    reason = report.last_error or f"it did not start within {LEARN_LIMIT_S:g} s"
    hint = report.hint or f"run `toolpost doctor {report.name}`"
    return f"server `{report.name}` has no tools: {reason} ({hint})"


def warn_of_problems(app: App) -> ExitCode:
    """Print the problems to stderr; returns FAILED if a server or a plugin failed, else OK."""
    for problem in problems_of(app):
        warn(problem)
    has_failed = any(plugin.state == "failed" for plugin in app.plugins.plugins)
    return ExitCode.FAILED if has_failed or failed_servers(app) else ExitCode.OK


def find_tool(app: App, catalog: Catalog, name: str) -> ProvidedTool:
    """Find a tool by name.

    Raises `UpstreamUnavailable` or `CapabilityMissing` if its server or plugin failed, else `UnknownTool` with the nearest name.
    """
    try:
        return catalog.find(name)
    except UnknownTool as error:
        if (report := failed_servers(app).get(str(error.details.get("server")))) is not None:
            raise UpstreamUnavailable(
                f"The tool `{name}` is unavailable: {failure_of(report)}.", server=report.name
            ) from error
        if "server" in error.details:
            raise
        for plugin in app.plugins.plugins:
            if plugin.state == "failed" and name.startswith(f"{plugin.name}__"):
                raise CapabilityMissing(f"The tool `{name}` is unavailable: {'; '.join(plugin.problems)}.") from error
        raise UnknownTool(error.message, hint=_hint_at_tool(app, name, error.details.get("nearest"))) from error


def _hint_at_tool(app: App, name: str, near: Sequence[str] | None) -> str:
    owner = name.partition("__")[0]
    if owner in bundled_plugins() and all(plugin.name != owner for plugin in app.plugins.plugins):
        return (
            f"the plugin `{owner}` comes with Toolpost: --with {owner}, or plugins.bundled in toolpost.toml, loads it"
        )
    if not app.config.servers and (path := find_unused_client_file()) is not None:
        return describe_unused_client_file(path)
    meant = f"did you mean `{near[0]}`? " if near else ""
    return f"{meant}`toolpost tools` lists all of them"


def complete_tool_names(
    context: click.Context,
    parameter: click.Parameter,  # noqa: ARG001 (click's signature)
    incomplete: str,
) -> list[CompletionItem]:
    """Complete a tool's name without starting servers; errors complete to nothing."""
    try:
        config = load_cli_config(context.params.get("config_path"), context.params.get("plugins") or ())
        titles = run_async(_read_known_titles, config)
    except Exception:  # noqa: BLE001 (completion cannot show messages)
        return []
    return [CompletionItem(name, help=title) for name, title in titles.items() if name.startswith(incomplete)]


async def _read_known_titles(config: Config) -> dict[str, str | None]:
    """Return the titles of the plugins' tools, and of the tools that servers listed last, by name."""
    titles: dict[str, str | None] = {}
    async with open_quiet_app(without_store(config), servers=[]) as app:
        titles |= {tool.contract.name: tool.contract.terms.title for tool in app.gateway.catalog}
    servers = {name: server for name, server in config.servers.items() if server.enabled}
    if not servers or not await store_exists(config.store_url):
        return titles
    async with open_store(config.store_url, pool=1, retry_s=1.0) as store:
        for name, server in servers.items():
            spec = ServerSpec(name=name, allow=tuple(server.allow), deny=tuple(server.deny))
            known = await store.known_tools.recall(name)
            seen = {str(tool["name"]): tool for tool in known.definitions if "name" in tool} if known else {}
            for tool, listed in tool_names(PluginName(name), filter(spec.admits, seen)).items():
                title = seen[tool].get("title")
                titles[listed] = title if isinstance(title, str) else None
    return titles
