"""JSON made smaller: it stays valid, keeps its shape, and is never cut inside a character."""

import json
import random
from typing import Any

import pytest

from toolpost.parts.results.cut import CannotCut, cut_json, cut_string
from toolpost.parts.results.scan import Scanner, TooManySteps, end_of_characters


def cut(value: Any, budget: int, **options: Any) -> Any:
    data = json.dumps(value, separators=(",", ":")).encode()
    made = cut_json(data, 0, len(data), budget, **options)
    assert len(made) <= budget
    return json.loads(made)


def test_arrays_keep_their_first_items_and_objects_all_keys() -> None:
    rows = [{"id": number, "name": f"row {number}"} for number in range(1000)]
    made = cut({"before": 1, "rows": rows, "after": {"total": 1000}}, 500)

    assert made["before"] == 1
    assert made["after"] == {"total": 1000}
    assert 5 < len(made["rows"]) < 30
    assert made["rows"] == rows[: len(made["rows"])]


def test_large_members_share_what_small_ones_leave() -> None:
    made = cut({"small": "x", "one": "a" * 9000, "two": "b" * 9000}, 1000)

    assert made["small"] == "x"
    assert abs(len(made["one"]) - len(made["two"])) < 5
    assert made["one"].startswith("a" * 400)
    assert made["one"].endswith(" more bytes]")


def test_what_may_be_cut_is_chosen() -> None:
    value = {"key": "k" * 100, "rows": ["r" * 50] * 100}
    assert cut(value, 500, strings=False)["key"] == "k" * 100
    assert len(cut({"a": ["x" * 500] * 3}, 500, arrays=False)["a"]) == 3
    with pytest.raises(CannotCut):
        cut({"key": "k" * 1000}, 500, strings=False)
    with pytest.raises(CannotCut):
        cut({f"number {key}": key for key in range(500)}, 500, arrays=False)


def test_a_table_of_many_keys_keeps_the_first() -> None:
    for count in (200, 5000):
        made = cut({f"key {number}": number for number in range(count)}, 1000)
        assert list(made) == [f"key {number}" for number in range(len(made))]
        assert len(made) > 30


@pytest.mark.parametrize("ascii_only", [True, False])
def test_text_is_never_cut_inside_a_character_or_an_escape(ascii_only: bool) -> None:
    text = 'a😀é"\\\n\t€' * 40
    data = json.dumps(text, ensure_ascii=ascii_only).encode()
    for budget in range(60, 300):
        made, shown = cut_string(data, 0, len(data), budget)
        assert len(made) <= budget
        head, _, mark = json.loads(made).partition("…")
        assert text.startswith(head)
        head.encode()  # not half of a pair
        assert mark == f" [{len(data) - 1 - shown} more bytes]"


def test_half_a_surrogate_pair_and_bytes_that_are_no_text_do_no_harm() -> None:
    lone = b'"' + b"\\ud83d" * 50 + b'"'
    assert cut_string(lone, 0, len(lone), 100)[0].startswith(b'"')
    broken = b"abc\xff\xfe" * 20
    assert end_of_characters(broken, 0, 50) == 3


def test_a_random_value_stays_valid_and_within_its_budget() -> None:
    source = random.Random(7)

    def make(depth: int = 0) -> Any:
        kind = source.random()
        if depth > 5 or kind < 0.3:
            return source.choice(
                ["a" * source.randint(0, 200), "😀é\n" * source.randint(0, 60), 1, None, True, -1.5e10]
            )
        if kind < 0.6:
            return [make(depth + 1) for _ in range(source.randint(0, 8))]
        return {f"k😀{number}": make(depth + 1) for number in range(source.randint(0, 6))}

    made = 0
    for _ in range(300):
        try:
            cut(make(), source.randint(50, 3000))
            made += 1
        except CannotCut:
            continue
    assert made > 200


def test_deep_and_dense_json_is_bounded() -> None:
    deep = b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    assert Scanner(deep).skip(0) == len(deep)
    # One level after the other would take quadratic time.
    with pytest.raises(TooManySteps):
        cut_json(deep, 0, len(deep), 1000, steps=Scanner(deep, 1_000_000))
    spaced = b' [ 1 , { "a" : [ ] , "b" : "x" } ] '
    assert [spaced[m.start : m.end] for m in Scanner(spaced).members(1)] == [b"1", b'{ "a" : [ ] , "b" : "x" }']
