"""Parts and plugins: found, loaded and opened in order. One that fails is named, and the others serve."""

import logging
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from inspect import iscoroutine
from pathlib import Path
from typing import cast

from toolpost.authoring import Plugin
from toolpost.base.events import event
from toolpost.contracts.errors import BadConfiguration, ToolpostError
from toolpost.host.blame import blame_part, make_part_failure
from toolpost.host.contributions import Background, Contributions
from toolpost.host.host import Host
from toolpost.manifest import BadManifest, Part, bundled_parts, bundled_plugins, describe, installed_parts, resolve
from toolpost.providers.configured_middleware import load_middleware
from toolpost.providers.loaded_plugin import explain_author_error
from toolpost.providers.plugin_candidates import PluginCandidate, candidates_from, find_installed
from toolpost.providers.plugin_hooks import HookSpecs
from toolpost.providers.plugins import Plugins
from toolpost.settings import Config
from toolpost.settings.section import check_effects, read_sections
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
            part = entry.load()
            read_sections(part)
            parts.append(part)
        except Exception as error:  # noqa: BLE001 (a part may raise anything)
            plugins.note_part_failure(entry.name, "could not be loaded", error)
    return parts


async def open_parts(parts: Sequence[Part], host: Host, contributions: Contributions, stack: AsyncExitStack) -> None:
    """Open parts in order; one that fails is named among the plugins, and the rest serves.

    Raises `BadConfiguration` for bad settings, for a part that fails although the settings need it, and for contributions of no
    known kind.
    """
    if host.loads_bundled:
        check_effects(host.config)
    for part in parts:
        try:
            async with AsyncExitStack() as opening:
                if part.migrations is not None:
                    await migrate_part(host.store, host.config.store_url, part.name, part.migrations)
                opened = blame_part(part.name, "could not be closed", _call_opens(part, host))
                items = await opening.enter_async_context(opened)
                if not isinstance(items, list | tuple):
                    raise BadManifest(f"it yields {describe(items)}, not a list of contributions")
                opened_parts = opening.pop_all()
        except BadConfiguration:
            raise
        except Exception as error:
            if _is_required(part, host.config):
                raise BadConfiguration(
                    f"the part `{part.name}` cannot be enforced: {explain_author_error(error)}"
                ) from error
            host.plugins.note_part_failure(part.name, "could not be opened", error)
        else:
            stack.push_async_exit(opened_parts)
            contributions.add(part.name, items)


def _call_opens(part: Part, host: Host) -> AbstractAsyncContextManager[object]:
    opened = resolve(part.opens)(host)
    if not hasattr(opened, "__aenter__"):
        if iscoroutine(opened):
            opened.close()  # else it complains that it was never awaited
        raise BadManifest(
            f"`opens` returned {describe(opened)}, not an asynchronous context manager: decorate it with `@asynccontextmanager`"
        )
    return cast("AbstractAsyncContextManager[object]", opened)


def _is_required(part: Part, config: Config) -> bool:
    """Whether nothing may be served without a part that failed; so too if that cannot be found out."""
    try:
        return part.is_required is not None and bool(resolve(part.is_required)(config))
    except Exception as error:
        raise BadConfiguration(
            f"the part `{part.name}` could not be opened, nor its `is_required` be called: {explain_author_error(error)}",
            hint=f'correct it, or leave the part out: plugins.disable = ["{part.name}"]',
        ) from error


async def open_background(part: str, background: Background, stack: AsyncExitStack) -> None:
    """Open what a part runs in the background. Raises `PluginFailed`, with its name, if that fails."""
    try:
        opened = background.open()
        if not hasattr(opened, "__aenter__"):
            raise BadManifest(f"`open` returned {describe(opened)}, not an asynchronous context manager")
        await stack.enter_async_context(blame_part(part, "failed in its background", opened))
    except ToolpostError:
        raise
    except Exception as error:
        raise make_part_failure(part, "could not open its background", error) from error


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
