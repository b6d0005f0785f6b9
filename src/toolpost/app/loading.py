"""Parts and plugins: found, loaded and opened in order. One that fails is named, and the others serve."""

import logging
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from toolpost.authoring import Plugin
from toolpost.base.events import event
from toolpost.contracts.errors import BadConfiguration
from toolpost.host.contributions import Contributions
from toolpost.host.host import Host
from toolpost.manifest import Part, bundled_parts, bundled_plugins, installed_parts, resolve
from toolpost.providers.configured_middleware import load_middleware
from toolpost.providers.plugin_candidates import PluginCandidate, candidates_from, find_installed
from toolpost.providers.plugin_hooks import HookSpecs
from toolpost.providers.plugins import Plugins
from toolpost.settings import Config
from toolpost.settings.section import check_effects
from toolpost.store.part_migrations import migrate_part
from toolpost.upstreams.in_process import ServerObject

_log = logging.getLogger("toolpost.app")


def load_parts(config: Config, plugins: Plugins, *, installed: bool) -> list[Part]:
    """Load the parts that come with Toolpost, and installed ones; one of these that fails is named, and the rest serves."""
    parts = [*bundled_parts()]
    for entry in installed_parts() if installed else ():
        if entry.name in config.plugins.disable:
            continue
        try:
            parts.append(entry.load())
        except Exception as error:  # noqa: BLE001 (a part may raise anything)
            plugins.note_failure(entry.name, "could not be loaded", error)
    return parts


async def open_parts(parts: Sequence[Part], host: Host, contributions: Contributions, stack: AsyncExitStack) -> None:
    """Open parts in order; one that fails is named among the plugins, and the rest serves. Bad settings are an error."""
    if host.loads_bundled:
        check_effects(host.config)
    for part in parts:
        try:
            if part.migrations is not None:
                await migrate_part(host.store, host.config.store_url, part.name, part.migrations)
            contributions.add(part.name, await stack.enter_async_context(resolve(part.opens)(host)))
        except BadConfiguration:
            raise
        except Exception as error:
            if part.is_required is not None and resolve(part.is_required)(host.config):
                raise BadConfiguration(f"the part `{part.name}` cannot be enforced: {error}") from error
            host.plugins.note_failure(part.name, "could not be opened", error)


def add_project_to_path(config: Config) -> None:
    """Put the project's folder on the path, so that its plugins are found; last, so that they shadow no installed module."""
    if (folder := str(Path(config.project).resolve())) not in sys.path:
        sys.path.append(folder)


def load_plugins(host: Host, given: Sequence[Plugin | ServerObject], contributions: Contributions) -> None:
    """Load the plugins that are given, those of parts, those that are installed and those that are configured."""
    settings, plugins = host.config.plugins, host.plugins
    for hooks in contributions.all(HookSpecs):
        plugins.add_hooks(hooks)
    plugins.add_middleware(load_middleware(host.config.middleware.load))
    bundled = {part.name for part in bundled_parts()}
    ours: list[PluginCandidate] = []
    others: list[PluginCandidate] = []
    for part, plugin in contributions.named(Plugin):
        (ours if part in bundled else others).append(_candidate(plugin))
    for part, candidate in contributions.named(PluginCandidate):
        (ours if part in bundled else others).append(candidate)
    others += candidates_from(settings.load)
    # A configured server with the name of a bundled plugin replaces that plugin.
    taken = [] if settings.chosen else [name for name, server in host.config.servers.items() if server.enabled]
    for candidate in map(_candidate, given):
        plugins.load(candidate, disabled=settings.disable)
    for candidate in sorted(ours, key=_rank):
        plugins.load(candidate, disabled=[*settings.disable, *taken])
    for candidate in others:
        plugins.load(candidate, disabled=settings.disable)
    # Last: a plugin that is named wins over an installed one of that name.
    named = [plugin.name for plugin in plugins.plugins if plugin.reference in settings.load] + [*plugins.servers]
    for candidate in find_installed() if host.loads_bundled and settings.installed else ():
        plugins.load(candidate, disabled=[*settings.disable, *named])
    if host.loads_bundled and settings.installed:
        _warn_of_unknown(host, {plugin.name for plugin in plugins.plugins}.union(bundled))
    plugins.keep_chosen()


def _warn_of_unknown(host: Host, loaded: set[str]) -> None:
    """Log names in settings that no plugin has, perhaps of a package that is not installed here.

    If one is mistyped instead, a plugin is on that should be off, or has no tags.
    """
    settings = host.config.plugins
    known = loaded.union(bundled_plugins(), host.config.parts.get("apis", ()))
    for name in (name for name in settings.disable if name not in known):
        event(_log, logging.WARNING, "no plugin to disable", plugin=name, setting="plugins.disable")
    for name in (name for name in settings.tags if name not in known):
        event(_log, logging.WARNING, "no plugin to tag", plugin=name, setting="plugins.tags")


def _candidate(plugin: Plugin | ServerObject | PluginCandidate) -> PluginCandidate:
    return plugin if isinstance(plugin, PluginCandidate) else PluginCandidate(name=plugin.name, load=lambda: plugin)


def _rank(candidate: PluginCandidate) -> int:
    """Return the position of a bundled plugin: the documented ones first, in their documented order."""
    return bundled_plugins().index(candidate.name) if candidate.name in bundled_plugins() else len(bundled_plugins())
