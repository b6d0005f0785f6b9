"""References to plugins, servers and middleware: `package.module:attribute`, a module alone, or the path of a Python file."""

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from toolpost.authoring import Plugin
from toolpost.base.nearest import nearest_name
from toolpost.contracts.errors import PluginFailed
from toolpost.upstreams.in_process import find_in_process_server

_ATTRIBUTE: Final = re.compile(r"[\w.]+")


def resolve(reference: str) -> Any:
    """Import what a reference names; a file without an attribute is the one plugin or server in it.

    Raises `PluginFailed` if there is no such file, module or attribute, and what the module raises.
    """
    module_name, attribute = split_reference(reference)
    module = _import_module(reference, module_name)
    if not attribute:
        return _find_only_plugin(module, reference) if _split_path(reference) else module
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise PluginFailed(_explain_missing(module, reference, part))
        found = getattr(found, part)
    return found


def split_reference(reference: str) -> tuple[str, str]:
    """Return the module to import and the attribute, "" if there is none; the folder of a file is put on the path."""
    if (found := _split_path(reference)) is None:
        module_name, _, attribute = reference.partition(":")
        return module_name, attribute
    path, attribute = found
    file = _find_file(path)
    steps = [] if file.name == "__init__.py" else [file.stem]
    folder = file.parent
    while (folder / "__init__.py").exists():
        steps.insert(0, folder.name)
        folder = folder.parent
    # Last, so that the files beside it shadow no installed module.
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return ".".join(steps), attribute


def list_plugins(module: ModuleType) -> list[str]:
    """Return the names in a module that are plugins or servers; one that has several names is listed once."""
    found: dict[int, str] = {}
    for name, value in vars(module).items():
        if isinstance(value, Plugin) or find_in_process_server(value):
            found.setdefault(id(value), name)
    return list(found.values())


def _split_path(reference: str) -> tuple[str, str] | None:
    """Return the path of a file and the attribute, "" if there is none; None if the reference names a module."""
    path, _, attribute = reference.rpartition(":")
    if not path or not _ATTRIBUTE.fullmatch(attribute):  # `C:\plugin.py` has a colon too
        path, attribute = reference, ""
    is_path = "/" in path or "\\" in path or path.endswith(".py")
    return (path, attribute) if is_path else None


def _find_file(path: str) -> Path:
    """Find a file by its path, relative to this folder or the project's."""
    for folder in (".", *sys.path):
        file = (Path(folder) / Path(path).expanduser()).resolve()
        if file.is_dir():
            file /= "__init__.py"
        if file.is_file():
            return file
    raise PluginFailed(f"there is no file {path}")


def _import_module(reference: str, module_name: str) -> ModuleType:
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that the plugin imports is another matter: its own line says so.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise PluginFailed(
            f"there is no module `{error.name}` beside the configuration or installed; a file is named by its path: ./FILE.py"
        ) from error
    found = _split_path(reference)
    loaded_from = getattr(module, "__file__", None)
    if found is not None and (loaded_from is None or Path(loaded_from).resolve() != _find_file(found[0]).resolve()):
        raise PluginFailed(f"another module is named `{module_name}` ({loaded_from or 'built in'}); rename the file")
    return module


def _find_only_plugin(module: ModuleType, reference: str) -> Any:
    names = list_plugins(module)
    if len(names) > 1:
        raise PluginFailed(f"the file has several plugins; name one: {_join(reference, names)}")
    return getattr(module, names[0]) if names else module


def _explain_missing(module: ModuleType, reference: str, part: str) -> str:
    place = reference.rpartition(":")[0]
    near = nearest_name(part, vars(module))
    names = list_plugins(module) or ([near] if near else [])
    return f"`{place}` has no `{part}`" + (f"; did you mean {_join(place, names)}?" if names else " and no plugin")


def _join(place: str, names: list[str]) -> str:
    return " or ".join(f"`{place}:{name}`" for name in names)
