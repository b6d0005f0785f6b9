"""Questions of a newcomer: the answer is at most four files away from the README, by links alone."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

MOST_FILES = 4

QUESTIONS = {
    "add a setting to the bus": ("src/toolpost/parts/bus/settings.py", "BUS"),
    "where is a call refused": ("src/toolpost/middleware/validate.py", "InvalidArguments"),
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
