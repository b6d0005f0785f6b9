"""Questions of a newcomer: the answer is at most four files away from the README, by links alone, and it is true."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from toolpost.manifest import bundled_parts

MOST_FILES = 4

QUESTIONS = {
    "add a setting to the bus": ("src/toolpost/parts/bus/settings.py", "BUS"),
    "where is a call refused": ("ARCHITECTURE.md", "### Where a call is refused"),
    "where are its arguments refused": ("src/toolpost/middleware/validate.py", "InvalidArguments"),
    "remove the trail": ("src/toolpost/parts/trail/__init__.py", "PART"),
    "an approval when the gateway dies": ("docs/parts/approvals.md", "### If the gateway is killed"),
}
"""Each with the file that answers it, and a text of that file."""


def links_of(page: Path) -> Iterator[Path]:
    """Yield the files of the repository that a page links to."""
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        path = (page.parent / target).resolve()
        if "://" not in target and path.is_file() and path.is_relative_to(ROOT):
            yield path


def count_files(start: Path, end: Path) -> int:
    """Count the files on the shortest way over links, with both ends; a number above the limit if there is none."""
    reached, frontier = {start}, {start}
    for number in range(1, MOST_FILES + 1):
        if end in frontier:
            return number
        pages = (page for page in frontier if page.suffix == ".md")
        frontier = {link for page in pages for link in links_of(page)} - reached
        reached |= frontier
    return MOST_FILES + 1


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_near_the_readme(question: str) -> None:
    file, text = QUESTIONS[question]

    assert count_files(ROOT / "README.md", ROOT / file) <= MOST_FILES
    assert text in (ROOT / file).read_text()


def test_a_page_that_nothing_links_to_is_not_near(tmp_path: Path) -> None:
    start, end = tmp_path / "start.md", tmp_path / "end.md"
    start.write_text("[nowhere](missing.md)")
    end.write_text("")

    assert count_files(start, end) == MOST_FILES + 1


def section_of(page: str, heading: str) -> str:
    return page.split(f"### {heading}\n", 1)[1].split("\n#", 1)[0]


def test_calls_are_refused_where_the_page_says() -> None:
    section = section_of((ROOT / "ARCHITECTURE.md").read_text(), "Where a call is refused")
    places = re.findall(r"`([\w/]+\.py)`(?:\]\([^)]*\))? \(`(\w+)`\)", section)

    assert {name for _, name in places} == {"find", "_not_served", "_forbid", "_quarantine"}
    for file, function in places:
        tree = ast.parse((ROOT / "src/toolpost" / file).read_text())
        found = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert function in found, f"{file} has no {function}"


LISTS_OF_PARTS = {"bench/trail.py", "tests/test_bundled_tools.py"}
"""Files that name every part, and the measurements of this one."""


def test_nothing_but_lists_of_all_parts_imports_the_trail() -> None:
    files = [path for folder in ("src", "tests", "bench") for path in (ROOT / folder).rglob("*.py")]
    own = (ROOT / "src/toolpost/parts/trail", ROOT / "tests/parts/trail")
    imports = re.compile(
        r"^\s*(?:from|import) [\w.]*parts\.trail|^\s*from [\w.]*parts import .*\btrail\b", re.MULTILINE
    )
    found = {
        str(path.relative_to(ROOT))
        for path in files
        if not path.is_relative_to(own[0]) and not path.is_relative_to(own[1]) and imports.search(path.read_text())
    }

    assert found == LISTS_OF_PARTS
    assert "trail" in {part.name for part in bundled_parts()}
