"""The docs are true: reference pages agree with the code, examples run, links lead somewhere."""

import importlib
import re
from pathlib import Path

import pytest

from toolpost.contracts import errors
from toolpost.contracts.errors import ErrorCode, ToolpostError
from toolpost.parts.bus.errors import StaleLease

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]


def leaves(kind: type[ToolpostError]) -> list[type[ToolpostError]]:
    return [kind, *(leaf for child in kind.__subclasses__() for leaf in leaves(child))]


def test_the_error_page_lists_exactly_the_codes() -> None:
    page = (ROOT / "docs/reference/errors.md").read_text()
    listed = re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE)

    assert listed == [code.value for code in ErrorCode]


def test_every_code_has_an_error_and_the_drawn_tree_is_the_tree() -> None:
    drawn = dict(re.findall(r"── (\w+)\s+([A-Z_]{6,})?", errors.__doc__ or ""))
    for path in (ROOT / "src/toolpost/parts").glob("*/errors.py"):
        importlib.import_module(f"toolpost.parts.{path.parent.name}.errors")
    known = {kind.__name__: kind for kind in leaves(ToolpostError) if kind is not ToolpostError}

    assert set(drawn) == {name for name, kind in known.items() if kind.__module__ == errors.__name__}
    assert {name: code for name, code in drawn.items() if code} == {
        name: known[name].code for name in drawn if drawn[name]
    }
    assert {kind.code for kind in known.values()} | {StaleLease.code} == set(ErrorCode)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
