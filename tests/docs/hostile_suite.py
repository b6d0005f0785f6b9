"""The page of the attacks that are kept as tests, made from their `@attack` lines. Tests are read, not imported."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeGuard, get_args

from tests.hostile.attacks import Attacker

TESTS: Final = Path(__file__).parents[1]

_ATTACKERS: Final = {
    "stranger": "A program that reaches the port without a token, or a web page in the browser of a user with access.",
    "caller": "A caller with a valid token that tries to reach another caller's data, or to take more than a fair share.",
    "server": "An MCP server behind the gateway, with its processes.",
    "repository": "The files of a folder in the workspace plugin's index, including git's own files.",
    "agent": "An agent in a conversation, with the output of its model.",
    "operator": "The operator of the gateway: mistakes, crashes and manipulated files, rather than malice.",
}


@dataclass(frozen=True, order=True)
class Attack:
    """One `@attack` line."""

    file: str
    line: int
    attacker: str
    attempt: str
    holds: str
    is_soak: bool


def attacks_page(command: str) -> str:
    """Return the page."""
    return "\n".join([*_head(command), *_tables(list(find_attacks()))]) + "\n"


def find_attacks(folder: Path = TESTS) -> Iterator[Attack]:
    """Yield the attacks of every test file, in the order of the files."""
    for path in sorted(folder.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        is_soak_module = any(_is_soak(node.value) for node in tree.body if _is_pytestmark(node))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                is_soak = is_soak_module or any(_is_soak(mark) for mark in node.decorator_list)
                for mark in node.decorator_list:
                    if (said := _said_by(mark, path)) is not None:
                        yield Attack(path.relative_to(folder).as_posix(), node.lineno, *said, is_soak)


def _is_pytestmark(node: ast.stmt) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"


def _is_soak(mark: ast.expr) -> bool:
    return any(isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.soak" for node in ast.walk(mark))


def _said_by(mark: ast.expr, path: Path) -> tuple[str, str, str] | None:
    """Return attacker, attempt and what holds, None for any other decorator."""
    if not (isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "attack"):
        return None
    said = [part.value for part in mark.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    if len(said) != 3 or mark.keywords or said[0] not in get_args(Attacker):
        raise ValueError(f"{path}, line {mark.lineno}: @attack takes an attacker and two literal texts")
    return said[0], said[1], said[2]


def _head(command: str) -> Iterator[str]:
    yield "# The hostile suite\n"
    yield f"<!-- Made by `{command}`; a test compares the two. -->\n"
    yield "The attacks on the gateway that its tests try, by attacker, with the expected result."
    yield "[The threat model](../explanation/threat-model.md) lists the guarantees and their limits.\n"
    yield "*normal* is part of every run of `scripts/test`; *soak* takes minutes and runs with `scripts/test --soak`.\n"


def _tables(attacks: list[Attack]) -> Iterator[str]:
    for attacker in get_args(Attacker):
        rows = [attack for attack in attacks if attack.attacker == attacker]
        if rows:
            yield f"## {attacker.capitalize()}\n"
            yield f"{_ATTACKERS[attacker]}\n"
            yield "| attack | result | test | run |"
            yield "|---|---|---|---|"
            yield from (_row(attack) for attack in rows)
            yield ""


def _row(attack: Attack) -> str:
    cells = (attack.attempt, attack.holds, f"`tests/{attack.file}`", "soak" if attack.is_soak else "normal")
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
