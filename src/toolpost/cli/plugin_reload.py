"""`toolpost serve --reload`: plugins are loaded again while they are written.

A saved file is loaded again in the same process: clients stay connected and are told that the lists have changed. What does not
load leaves the last good state served, and its traceback is printed. Files are polled, as the configuration is.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import anyio
import click

from toolpost.admin.specs import specs_of
from toolpost.app import App
from toolpost.base.author_code import format_author_traceback, place_of_error
from toolpost.base.redaction import conceal_known
from toolpost.base.stamps import Stamp, read_stamp
from toolpost.contracts.errors import InvalidRequest, PluginFailed, ToolpostError
from toolpost.providers.plugin_candidates import candidates_from
from toolpost.providers.references import split_reference
from toolpost.settings import Config
from toolpost.terminal.failures import show_error, tell
from toolpost.terminal.text import printable

LOOK_S: Final = 0.3

Stamps = dict[Path, Stamp]
"""What identifies the state of each file of a plugin."""

_OWN_FILES: Final = str(Path(__file__).parents[1])


def watch_plugins(config: Config) -> Callable[[App], Coroutine[Any, Any, None]]:
    """Return what loads the plugins of the configuration again when their files change; called before they are loaded.

    Loading takes time, and a change since then must not be missed.
    """
    if not config.plugins.load:
        raise InvalidRequest(
            "There is no plugin to reload.", hint="for example: toolpost serve --reload --plugin my_module:plugin"
        )
    # A file that is saved twice within a second with the same length would be taken from the cache of its bytecode.
    sys.dont_write_bytecode = True
    for folder in (Path.cwd(), Path.cwd() / "src"):
        if folder.is_dir() and str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    return partial(follow_plugins, stamps={reference: _read_stamps(reference) for reference in config.plugins.load})


async def follow_plugins(app: App, *, stamps: Mapping[str, Stamps], look_s: float = LOOK_S) -> None:
    """Load each plugin again whenever one of its files has changed, until cancelled; `stamps` are those it was loaded with."""
    seen = dict(stamps)
    while True:
        await anyio.sleep(look_s)
        for reference, before in seen.items():
            if (found := _read_stamps(reference)) != before:
                seen[reference] = found
                await reload_plugin(app, reference)


async def reload_plugin(app: App, reference: str) -> bool:
    """Load a plugin again; returns False, prints why and leaves the former one served if that fails."""
    former = _forget_modules(reference)

    async def apply_servers() -> None:
        await app.servers.apply(specs_of(app.changes.config, app.plugins))

    try:
        importlib.invalidate_caches()
        loaded = await app.plugins.reload(candidates_from([reference])[0], apply_servers=apply_servers)
    except Exception as error:  # noqa: BLE001 (a plugin may raise anything)
        _forget_modules(reference)
        sys.modules.update(former)
        _show(reference, error)
        return False
    if isinstance(loaded, str):
        name, count = loaded, len(app.servers.providers[loaded].tools)
    else:
        name, count = loaded.name, len(loaded.provider.tools) if loaded.provider is not None else 0
    tell("reloaded", f"{name}, with {count} {'tool' if count == 1 else 'tools'}", color="green")
    return True


def _show(reference: str, error: Exception) -> None:
    if not isinstance(error, ToolpostError):
        click.echo(conceal_known(printable(format_author_traceback(error))), err=True, nl=False)
    why = error.message if isinstance(error, ToolpostError) else f"{type(error).__name__}: {error}"
    place = place_of_error(error)
    where = f" ({place})" if place is not None and place not in why else ""
    show_error(f"`{reference}` not loaded, its previous version stays: {why}{where}")


def _files_of(reference: str) -> list[Path]:
    """Return the files of the package that a plugin is in, or of the folder if it is a single module."""
    try:
        top_level = split_reference(reference)[0].partition(".")[0]
        spec = importlib.util.find_spec(top_level)
    except (ImportError, ValueError, PluginFailed):
        return []
    if spec is None:
        return []
    if spec.submodule_search_locations:
        return [path for folder in spec.submodule_search_locations for path in sorted(Path(folder).rglob("*.py"))]
    return sorted(Path(spec.origin).parent.glob("*.py")) if spec.origin else []


def _read_stamps(reference: str) -> Stamps:
    return {path: stamp for path in _files_of(reference) if (stamp := read_stamp(path)) is not None}


def _forget_modules(reference: str) -> dict[str, ModuleType]:
    """Remove the modules of a plugin from those that are imported, and return them by name."""
    files = {str(path.resolve()) for path in _files_of(reference)}
    found = {
        name: module
        for name, module in list(sys.modules.items())
        if (file := getattr(module, "__file__", None))
        and not file.startswith(_OWN_FILES)
        and name != "__main__"
        and str(Path(file).resolve()) in files
    }
    for name in found:
        del sys.modules[name]
    return found
