"""What is public in Python: listed on a page, documented, and all that the guides import."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks_of
from tests.docs.generate import COMMAND
from tests.docs.python_api import MODULES, api_page
from tests.doors import DOORS

PUBLIC = tuple(dict.fromkeys((*MODULES, *DOORS)))

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_every_public_name_is_on_the_page() -> None:
    page = (ROOT / "docs/reference/python-api.md").read_text()

    for module in MODULES:
        section = page.partition(f"## `{module}`\n")[2].partition("\n## ")[0]
        listed = {line.split("`")[1] for line in section.splitlines() if line.startswith("| `")}
        assert listed == set(importlib.import_module(module).__all__), f"run `{COMMAND}`"
    assert page == api_page(COMMAND)


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_there(module: str) -> None:
    found = importlib.import_module(module)

    assert len(set(found.__all__)) == len(found.__all__)
    assert [name for name in found.__all__ if not hasattr(found, name)] == []


def private_imports(text: str) -> Iterator[str]:
    """Say what a program imports of Toolpost that is not public."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if _is_ours(each.name) and each.name not in PUBLIC)
        elif isinstance(node, ast.ImportFrom) and _is_ours(node.module or ""):
            module = str(node.module)
            public = importlib.import_module(module).__all__ if module in PUBLIC else ()
            yield from (f"{module}.{each.name}" for each in node.names if each.name not in public)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "toolpost"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_import_what_is_public(page: Path) -> None:
    programs = [block for block in blocks_of(page) if block.language == "python"]

    assert [found for block in programs for found in private_imports(block.text)] == []


def test_private_imports_are_found() -> None:
    lines = [
        "import toolpost.upstreams.pool",
        "from toolpost import Plugin, open_app",
        "from toolpost.base.caller import Caller",
        "import json",
    ]

    assert list(private_imports("\n".join(lines))) == [
        "toolpost.upstreams.pool",
        "toolpost.open_app",
        "toolpost.base.caller.Caller",
    ]
