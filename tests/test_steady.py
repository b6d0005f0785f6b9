"""No test fails because the machine is busy: it waits for a condition, which has half a minute, and bounds counts and ratios.

A comment says why a line does otherwise.
"""

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
    """Return the lines that sleep for some seconds, in no loop and without a comment; what sleeps longer is to be cancelled."""
    lines = text.splitlines()
    found = _sleeps(ast.parse(text)) if "sleep(" in text else ()
    return [lines[number - 1].strip() for number in found if "  #" not in lines[number - 1]]


def _sleeps(tree: ast.AST) -> Iterator[int]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            continue
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("sleep") and node.args:
            seconds = node.args[0]
            if isinstance(seconds, ast.Constant) and isinstance(seconds.value, float | int) and 0 < seconds.value < 10:
                yield node.lineno
        yield from _sleeps(node)


TIME = re.compile(
    r"(?:_s|took|spent|elapsed|seconds|waited|longest)$|monotonic|process_time|thread_time|perf_counter|(?:cpu|stretch)_s"
)


def bounds_in_seconds(text: str) -> list[str]:
    """Return the asserts that something takes less than a short time, without a comment.

    CPU seconds multiplied by `slowness()` are a ratio. What is bounded by `LEAST_S` or more would else take much longer.
    """
    lines = text.splitlines()
    asserts = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assert)] if "assert" in text else []
    found = [node for node in asserts if any(map(_is_bound, ast.walk(node.test)))]
    return [
        lines[node.lineno - 1].strip()
        for node in found
        if not any("  #" in line for line in lines[node.lineno - 1 : node.end_lineno])
    ]


def _is_bound(node: ast.AST) -> bool:
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    return any(
        isinstance(operator, ast.Lt | ast.LtE) and _is_short(right) and _is_time(left)
        for left, operator, right in zip(sides, node.ops, sides[1:], strict=False)
    )


def _is_short(limit: ast.expr) -> bool:
    if isinstance(limit, ast.Constant):
        return isinstance(limit.value, float | int) and limit.value < LEAST_S
    return isinstance(limit, ast.Name) and limit.id.isupper() and limit.id.endswith("_S")


def _is_time(value: ast.expr) -> bool:
    names = [part for part in ast.walk(value) if isinstance(part, ast.Name | ast.Attribute)]
    return any(TIME.search(ast.unparse(name)) for name in names)


def test_nothing_is_waited_for_so_briefly_that_a_busy_machine_fails_it() -> None:
    found = {str(path.relative_to(TESTS)): too_short(path.read_text()) for path in sorted(TESTS.rglob("test_*.py"))}
    found.pop(Path(__file__).name)

    assert {name: lines for name, lines in found.items() if lines} == {}


def test_no_test_waits_for_a_time() -> None:
    found = {str(path.relative_to(TESTS)): fixed_waits(path.read_text()) for path in sorted(TESTS.rglob("test_*.py"))}

    assert {name: lines for name, lines in found.items() if lines} == {}, (
        "use tests/waiting.py, or say why in a comment"
    )


def test_no_test_bounds_a_short_time() -> None:
    found = {str(path.relative_to(TESTS)): bounds_in_seconds(path.read_text()) for path in sorted(TESTS.rglob("*.py"))}

    assert {name: lines for name, lines in found.items() if lines} == {}, (
        "count, compare two sizes, multiply CPU seconds by `slowness()` of tests/hostile/attacks.py, or say why in a comment"
    )


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("assert took_s < 2", True),
        ("assert time.thread_time() - before < 0.5, 'why'", True),
        ("assert (found, spent_s < LOOP_S) == (1, True)", True),
        ("assert answer.took_s <= 5", True),
        ("assert took_s < 2  # the clock is the test's own", False),
        ("assert thread_cpu_s(work) < 0.5 * slowness()", False),
        ("assert took_s < 30", False),
        ("assert count < 2", False),
        ("while time.monotonic() < limit_s: pass", False),
    ],
)
def test_a_bound_in_seconds_is_found(text: str, is_found: bool) -> None:
    assert bool(bounds_in_seconds(text)) == is_found


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("async def test():\n    await anyio.sleep(0.1)", True),
        ("def test():\n    with x:\n        time.sleep(0.5)", True),
        ("time.sleep(5)", True),
        ("await anyio.sleep(60)", False),
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
