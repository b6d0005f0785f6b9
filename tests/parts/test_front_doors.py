"""Parts import their own package, `toolpost`, and the front doors of the kernel: names of a package's `__all__`, nothing else.

There are no exceptions. What a part needs and no door has is moved into the part, or becomes a narrower method or contribution.
"""

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolpost
from tests.doors import DOORS

ROOT = Path(toolpost.__file__).parent

PART_DOORS = ("toolpost.parts.agents",)
"""Parts whose interface plugins use. The plugins of other parts use it as those of anyone do."""

BUDGET = 260
"""Names in the doors, beside those of `toolpost`: what an author of a part may have to look at."""


def find_imports(file: Path) -> Iterator[tuple[str, str]]:
    """Yield module and name of each import of ours in a file, wherever in it; the name is empty for a whole module."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.partition(".")[0] == "toolpost")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "toolpost":
            yield from ((node.module or "", alias.name) for alias in node.names)


def is_allowed(part: str, module: str, name: str) -> bool:
    own = f"toolpost.parts.{part}"
    if module == own or module.startswith(f"{own}.") or (module == "toolpost.parts" and name == part):
        return True
    return module in ("toolpost", *DOORS, *PART_DOORS) and name in getattr(
        importlib.import_module(module), "__all__", ()
    )


def find_inside() -> list[str]:
    """Return what parts import from behind the doors, as `PART MODULE:NAME`."""
    folders = sorted(folder for folder in (ROOT / "parts").iterdir() if (folder / "__init__.py").exists())
    return sorted(
        {
            f"{folder.name} {module}:{name}"
            for folder in folders
            for file in folder.rglob("*.py")
            for module, name in find_imports(file)
            if not is_allowed(folder.name, module, name)
        }
    )


def test_parts_come_in_by_the_front_doors() -> None:
    assert find_inside() == []


def test_the_doors_are_small() -> None:
    names = {door: len(getattr(importlib.import_module(door), "__all__", ())) for door in DOORS}
    print(f"{sum(names.values())} names in the doors: {names}")
    assert sum(names.values()) <= BUDGET


@pytest.mark.parametrize("door", DOORS)
def test_no_name_of_a_door_is_that_of_a_module_behind_it(door: str) -> None:
    found = importlib.import_module(door)
    modules = {module.name for module in pkgutil.iter_modules(getattr(found, "__path__", ()))}

    # A module that is imported takes the place of a name that was not looked up yet.
    assert not set(found.__all__) & modules
