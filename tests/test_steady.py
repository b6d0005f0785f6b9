"""No test fails because the machine is busy: what is waited for has half a minute, unless a comment says why it has less."""

import re
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


def test_nothing_is_waited_for_so_briefly_that_a_busy_machine_fails_it() -> None:
    found = {str(path.relative_to(TESTS)): too_short(path.read_text()) for path in sorted(TESTS.rglob("test_*.py"))}
    found.pop(Path(__file__).name)

    assert {name: lines for name, lines in found.items() if lines} == {}


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
