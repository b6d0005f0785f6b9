"""No test fails because the machine is busy: it waits for a condition, which has half a minute, unless a comment says why not."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LEAST_S = 20
LIMIT = re.compile(r"\b(?:fail_after|asyncio\.timeout|asyncio\.wait_for)\((?:[^()]*(?:\(\))?, )?(\d+(?:\.\d+)?)\)")


def too_short(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return [
        line.strip() for line in lines if "  #" not in line and any(float(s) < LEAST_S for s in LIMIT.findall(line))
    ]


def fixed_waits(text: str) -> list[str]:
    """Return the lines that sleep for less than a second, in no loop and without a comment."""
    lines = text.splitlines()
    found = _sleeps(ast.parse(text)) if "sleep(" in text else ()
    return [lines[number - 1].strip() for number in found if "  #" not in lines[number - 1]]


def _sleeps(tree: ast.AST) -> Iterator[int]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            continue
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("sleep") and node.args:
            seconds = node.args[0]
            if isinstance(seconds, ast.Constant) and isinstance(seconds.value, float | int) and 0 < seconds.value < 1:
                yield node.lineno
        yield from _sleeps(node)


def test_nothing_is_waited_for_so_briefly_that_a_busy_machine_fails_it() -> None:
    found = {str(path.relative_to(TESTS)): too_short(path.read_text()) for path in sorted(TESTS.rglob("test_*.py"))}
    found.pop(Path(__file__).name)

    assert {name: lines for name, lines in found.items() if lines} == {}


def test_no_test_waits_for_a_time() -> None:
    found = {str(path.relative_to(TESTS)): fixed_waits(path.read_text()) for path in sorted(TESTS.rglob("test_*.py"))}

    assert {name: lines for name, lines in found.items() if lines} == {}, (
        "use tests/waiting.py, or say why in a comment"
    )


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("async def test():\n    await anyio.sleep(0.1)", True),
        ("def test():\n    with x:\n        time.sleep(0.5)", True),
        ("time.sleep(0.5)  # the clock of the store goes on", False),
        ("while not holds():\n    time.sleep(0.1)", False),
        ("time.sleep(0)", False),
        ("time.sleep(LONG_S)", False),
    ],
)
def test_a_fixed_wait_is_found(text: str, is_found: bool) -> None:
    assert bool(fixed_waits(text)) == is_found


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("with anyio.fail_after(5):", True),
        ("with anyio.fail_after(0.5), pytest.raises(X):", True),
        ("await asyncio.wait_for(waiting, 5)", True),
        ("await asyncio.wait_for(event.wait(), 5)", True),
        ("async with asyncio.timeout(10):", True),
        ("with anyio.fail_after(30):", False),
        ("with anyio.fail_after(7):  # it is blocked for 8 s", False),
        ("with anyio.fail_after(LIMIT_S):", False),
    ],
)
def test_a_short_limit_is_found(line: str, is_found: bool) -> None:
    assert bool(too_short(line)) == is_found
