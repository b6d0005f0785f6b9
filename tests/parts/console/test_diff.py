"""Two texts side by side: what is aligned, and that no text takes long."""

import time

import pytest

from tests.hostile.attacks import slowness
from toolpost.parts.console.diff import ALIGNED_LIMIT, CONTEXT_LINES, SHOWN_LIMIT, side_by_side


def lines(*texts: str) -> str:
    return "\n".join(texts)


def test_changes_are_shown_with_the_lines_around_them() -> None:
    numbers = [str(number) for number in range(40)]
    changed = [*numbers[:10], "ten", *numbers[11:30], *numbers[31:], "end"]
    rows = side_by_side(lines(*numbers), lines(*changed))

    assert rows[:5] == [
        *({"kind": "same", "old": text, "new": text} for text in ("7", "8", "9")),
        {"kind": "changed", "old": "10", "new": "ten"},
        {"kind": "same", "old": "11", "new": "11"},
    ]
    assert {"kind": "same", "old": "…", "new": "…"} in rows
    assert {"kind": "gone", "old": "30", "new": None} in rows
    assert rows[-1] == {"kind": "new", "old": None, "new": "end"}
    assert side_by_side(lines(*numbers), lines(*numbers)) == []


def test_a_change_far_down_in_a_long_text_is_found() -> None:
    many = [str(number) for number in range(3 * SHOWN_LIMIT)]
    rows = side_by_side(lines(*many), lines(*many[:-10], "new", *many[-10:]))

    assert [row["new"] for row in rows if row["kind"] == "new"] == ["new"]
    assert len(rows) == 2 * CONTEXT_LINES + 1


def test_texts_that_differ_everywhere_are_shown_as_they_are() -> None:
    rows = side_by_side(lines(*["{"] * 2 * SHOWN_LIMIT), lines(*["}"] * (ALIGNED_LIMIT + 1)))

    assert len(rows) == SHOWN_LIMIT
    assert {row["kind"] for row in rows} == {"changed", "gone"}


@pytest.mark.parametrize("count", [ALIGNED_LIMIT, SHOWN_LIMIT])
def test_repeated_lines_take_no_time(count: int) -> None:
    # Every match is one line long, so that each of them would be looked for among all that are left.
    old, new = ([f"{side}{place}" if place % 2 else "{" for place in range(count - 1)] for side in ("old", "new"))
    began = time.process_time()
    side_by_side(lines("first", *old), lines("other", *new))

    assert time.process_time() - began < 10 * slowness()
