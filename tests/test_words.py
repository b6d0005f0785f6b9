"""The words of the code: the field's own, and none of the private dialect that it once had."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

from toolpost.contracts import errors

SOURCES = Path(__file__).parents[1] / "src" / "toolpost"

DIALECT = (
    *("whoever", "somebody", "nobody", "anybody", "of ours", "by itself", "anew", "mend", "no more", "any more"),
    "meanwhile",
)
"""Words that stand for a thing that has a name: the caller, the client, its future, the waiter, again, fix."""

MOST = 0.5
"""How many of them there may be in a thousand words of docstrings and comments."""


def _packages() -> list[str]:
    folders = [*SOURCES.iterdir(), *(SOURCES / "parts").iterdir()]
    names = {str(path.relative_to(SOURCES)) for path in folders if (path / "__init__.py").exists()}
    return sorted(names - {"parts"})


def _prose(path: Path) -> str:
    text = path.read_text()
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, documented))
    return "\n".join([*comments, *(ast.get_docstring(node) or "" for node in nodes)]).lower()


@pytest.mark.parametrize("package", _packages())
def test_prose_uses_the_words_of_the_field(package: str) -> None:
    prose = {path: _prose(path) for path in (SOURCES / package).rglob("*.py")}
    found = [
        f"{path.relative_to(SOURCES)}: {word}"
        for path, text in prose.items()
        for word in DIALECT
        for _ in re.findall(rf"\b{word}\b", text)
    ]
    words = len(re.findall(r"[a-z']+", "\n".join(prose.values())))

    assert len(found) <= MOST * words / 1000, found


def test_a_class_name_has_one_meaning() -> None:
    places = defaultdict(set)
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].add(str(path.relative_to(SOURCES)))
    shared = {name: sorted(found) for name, found in places.items() if len(found) > 1}

    assert shared == {}


@pytest.mark.parametrize("part", ["approvals", "authorization_server", "models", "time", "trail"])
def test_errors_say_what_to_do(part: str) -> None:
    """An error states a fact, and its hint what would change it."""
    known = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    mute = []
    paths = list((SOURCES / "parts" / part).rglob("*.py"))
    assert paths
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known and node.args:
                given = {keyword.arg for keyword in node.keywords}
                # `**facts` may bring one.
                if not given & {"hint", None}:
                    mute.append(f"{path.relative_to(SOURCES)}:{node.lineno}")

    assert not mute
