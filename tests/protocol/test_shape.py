"""Which JSON is decoded, judged by its bytes."""

import json
import random
from typing import Any

import pytest

from toolpost.protocol import shape
from toolpost.protocol.shape import DEPTH_LIMIT, DIGIT_LIMIT, BadShape, check_shape

PADDING = b" " * 2_000


def deep(levels: int) -> bytes:
    return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (deep(DEPTH_LIMIT), None),
        (deep(DEPTH_LIMIT + 1), "nests deeper than 256 levels"),
        (b"[" * 600, "nests deeper"),
        (b"[" + b"1," * 999 + b"1]", None),
        (b"[" + b"1," * 1_000 + b"1]", "more than 1,000 values"),
        (b'{"a":' + b"[" + b'"x",' * 999 + b'"x"]}', "more than 1,000 values"),
        (b'"' + b"[{," * 10_000 + b'"', None),
        (b'["' + b'\\"[,' * 10_000 + b'"]', None),
        (b'["' + b"\\\\" * 5_000 + b'",' + b"[" * 300 + b"]" * 300 + b"]", "nests deeper"),
        (b'["' + b"\\\\" * 5_000 + b'\\",' + b"[" * 300 + b"]" * 300 + b'"]', None),
    ],
)
def test_what_is_refused(raw: bytes, problem: str | None) -> None:
    if problem is None:
        check_shape(raw, value_limit=1_000)
    else:
        with pytest.raises(BadShape, match=problem):
            check_shape(raw, value_limit=1_000)


def test_a_long_number_is_refused_where_there_is_room_for_many() -> None:
    long = b"9" * (DIGIT_LIMIT + 1)
    check_shape(b"[%b]" % long)
    check_shape(b'["%b"]' % (long * 1_000))
    check_shape(b"[%b]" % b",".join([b"9" * DIGIT_LIMIT] * 1_000))
    with pytest.raises(BadShape, match="a number of more than 400 digits"):
        check_shape(b"[%b]" % b",".join([long] * 1_000))


def _value(chance: random.Random, depth: int) -> Any:
    kind = chance.random()
    if depth == 0 or kind < 0.4:
        return chance.choice([1, None, "", '"', "\\", '\\"', "[", "]}{,", "x" * 9, "\\\\"])
    if kind < 0.7:
        return [_value(chance, depth - 1) for _ in range(chance.randrange(4))]
    return {chance.choice('ab"\\[{,'): _value(chance, depth - 1) for _ in range(chance.randrange(4))}


def _counted(value: Any) -> tuple[int, int]:
    """Return how many values there are, an empty object or array counted twice, and how deep they nest."""
    if not isinstance(value, dict | list):
        return 1, 0
    inner = [_counted(each) for each in (value.values() if isinstance(value, dict) else value)]
    return 1 + sum(count for count, _ in inner) + (not inner), 1 + max((depth for _, depth in inner), default=0)


def test_slices_count_as_the_whole_does(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(5)
    for size in (2, 3, 7, 64, 1_000_000):
        monkeypatch.setattr(shape, "_SLICE_BYTES", size)
        for _ in range(200):
            value = [_value(chance, 6)]
            values, depth = _counted(value)
            raw = json.dumps(value).encode() + PADDING
            monkeypatch.setattr(shape, "DEPTH_LIMIT", depth)
            shape._check_exactly(raw, values - 1)
            with pytest.raises(BadShape, match="values"):
                shape._check_exactly(raw, values - 2)
            monkeypatch.setattr(shape, "DEPTH_LIMIT", depth - 1)
            with pytest.raises(BadShape, match="deeper"):
                shape._check_exactly(raw, values)
