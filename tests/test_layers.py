"""The layers of `src/toolpost`, where import-linter does not look: in stubs, and in the list of ARCHITECTURE.md."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/toolpost"
CONTRACT = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
LAYERS = [layer.split(" : ") for layer in CONTRACT["layers"]]
LEVELS = {name: level for level, names in enumerate(LAYERS) for name in names}
"""The level of each module and package of `toolpost`, 0 at the top; equal for those that may import each other."""

STUBS = sorted(path for path in PACKAGE.rglob("__init__.pyi") if path.parent != PACKAGE)


def find_violations(package: str, stub: str) -> list[str]:
    """Return the modules from which the stub of a package looks up names, although they are above it."""
    imports = [node.module or "" for node in ast.walk(ast.parse(stub)) if isinstance(node, ast.ImportFrom)]
    layers = {module: module.split(".")[1] for module in imports if module.startswith("toolpost.")}
    return [module for module, name in layers.items() if LEVELS[name] < LEVELS[package]]


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: str(path.parent.relative_to(PACKAGE)))
def test_a_stub_looks_names_up_only_below(stub: Path) -> None:
    assert find_violations(stub.relative_to(PACKAGE).parts[0], stub.read_text()) == []


def test_a_violation_is_found() -> None:
    stub = "from toolpost.app.callers import read as read\nfrom toolpost.store.base import Store as Store\n"

    assert find_violations("endpoints", stub) == ["toolpost.app.callers"]


def test_the_page_has_the_layers_in_their_order() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    drawn = re.findall(r"^[├└]── (\w+)(?:/|\.py) ", page, re.MULTILINE)
    without_source = ["__main__"]

    assert [name for name in drawn if name != "toolpost"] == [
        name for names in LAYERS for name in names if name not in without_source
    ]
