"""Names of the source in prose: classes on the contributors' pages, and the modules that a package's docstring lists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

PACKAGE = ROOT / "src/toolpost"
PAGES = ["ARCHITECTURE.md", "CONTRIBUTING.md"]

FEWEST_ROWS = 3
"""A docstring with fewer such rows has no list."""
UNLISTED = {"__init__", "__pycache__", "migrations"}


def docstring_of(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""


def list_rows(docstring: str) -> list[str]:
    """Return the names in the rows of a list of modules."""
    rows: list[str] = re.findall(r"^((?:[a-z_\d./]+, )*[a-z_\d./]+) {2,}\S", docstring, re.MULTILINE)
    return [name.rstrip("/").removesuffix(".py") for names in rows for name in names.split(", ")]


def find_modules(package: Path) -> Iterator[str]:
    """Yield the modules and packages in a package."""
    for path in package.iterdir():
        if path.stem not in UNLISTED and (path.suffix == ".py" or (path / "__init__.py").exists()):
            yield path.stem


WITH_LISTS = sorted(
    folder.parent
    for folder in PACKAGE.rglob("__init__.py")
    if len(list_rows(docstring_of(folder.parent))) >= FEWEST_ROWS
)


@pytest.mark.parametrize("package", WITH_LISTS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_list_of_modules_is_that_of_the_folder(package: Path) -> None:
    docstring = docstring_of(package)
    listed = list_rows(docstring)
    mentioned = {name.removesuffix(".py") for name in re.findall(r"`([a-z_\d./]+)`", docstring)}
    known = {name.partition("/")[0] for name in {*listed, *mentioned}}

    assert [name for name in listed if not any((package / f"{name}{end}").exists() for end in ("", ".py", ".js"))] == []
    assert sorted(set(find_modules(package)) - known) == []


def test_large_packages_have_lists() -> None:
    found = {str(path.relative_to(PACKAGE)) for path in WITH_LISTS}

    assert {
        "base",
        "contracts",
        "credentials",
        "endpoints",
        "endpoints/http",
        "middleware",
        "providers",
        "store",
    } <= found


@pytest.mark.parametrize("page", PAGES)
def test_classes_that_contributors_are_told_of_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)*(?:\.[A-Z_]+)?)`", text))
    source = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    defined = set(re.findall(r"^ *class (\w+)|^(\w+)(?:: [^=]+)? = ", source, re.MULTILINE))
    classes = {name for names in defined for name in names if name}

    assert named
    assert {name for name in named if name.partition(".")[0] not in classes} == set()
    members = {name.partition(".")[2] for name in named if "." in name}
    assert {member for member in members if not re.search(rf"^    {member} = ", source, re.MULTILINE)} == set()
