"""Patterns as sets of texts: held against the engine that serves calls."""

import itertools
import random

import pytest

from toolpost.contracts.compatibility.regex import UnsupportedPattern, find_text, is_pattern_within
from toolpost.contracts.schema import compile_schema

ATOMS = (
    *(
        "a",
        "b",
        "1",
        "[ab]",
        "[^a]",
        ".",
        r"\d",
        r"\w",
        r"\W",
        r"\s",
        "(?:ab|b)",
        "(a|1)",
        r"\.",
        "[a-c1]",
        r"[\d_]",
        "-",
    ),
    *(r"[^\s]", r"[\w.-]", "[a-]", r"\-"),
)
REPEATS = ("", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,3}", "{1,}", "*?")
TEXTS = ["".join(letters) for n in range(5) for letters in itertools.product("ab1 ", repeat=n)] + [
    *("_", ".", "-", "\n", "a\n", "é", "a.b", "c", "bc", "\u00a0", "\ufeff", "aa\r", "ab-1", "A")
]


def a_pattern(rng: random.Random) -> str:
    def branch() -> str:
        body = "".join(rng.choice(ATOMS) + rng.choice(REPEATS) for _ in range(rng.randint(0, 3)))
        return ("^" if rng.random() < 0.7 else "") + body + ("$" if rng.random() < 0.7 else "")

    return branch() if rng.random() < 0.8 else f"{branch()}|{branch()}"


@pytest.mark.parametrize(
    "count", [pytest.param(200, id="some"), pytest.param(40_000, marks=pytest.mark.soak, id="many")]
)
def test_what_is_said_of_two_patterns_holds(count: int) -> None:
    rng = random.Random(count)
    within = apart = 0
    for _ in range(count):
        narrow, wide = a_pattern(rng), a_pattern(rng)
        takes, must_take = (
            compile_schema({"type": "string", "pattern": pattern}, root_object=False).is_valid
            for pattern in (narrow, wide)
        )
        try:
            text = find_text(narrow, wide)
        except UnsupportedPattern:
            continue
        if text is None:
            within += 1
            lost = [value for value in TEXTS if takes(value) and not must_take(value)]
            assert not lost, (narrow, wide, lost)
        else:
            apart += 1
            assert takes(text), (narrow, text)
            assert not must_take(text), (wide, text)
    assert within > count / 20
    assert apart > count / 2


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        ("^[a-z]{3}$", "^[a-z]{2,4}$"),
        ("^[a-z]{3}$", "^[a-z][a-z][a-z]$"),
        ("^[0-9]+$", r"^\d+$"),
        (r"^\d{4}-\d{2}$", "^[0-9-]{7}$"),
        ("^abc", "^ab"),
        ("^(?:[0-9]{4}-){3}[0-9]{4}$", "^[0-9-]{19}$"),
        ("^a$|^b$", "^[ab]$"),
    ],
)
def test_a_looser_pattern_is_seen_to_be_looser(narrow: str, wide: str) -> None:
    assert is_pattern_within(narrow, wide)


@pytest.mark.parametrize(
    ("narrow", "wide"), [("^[a-z]{2,4}$", "^[a-z]{3}$"), ("^ab", "^abc"), ("a", "^a"), (".", "^.$"), ("", "a")]
)
def test_a_tighter_one_is_not(narrow: str, wide: str) -> None:
    assert not is_pattern_within(narrow, wide)


def test_lengths_beside_a_pattern_count() -> None:
    assert is_pattern_within("^[a-z]*$", "^[a-z]{2,4}$", least=2, most=4)
    assert not is_pattern_within("^[a-z]*$", "^[a-z]{2,4}$", least=2, most=5)
    assert find_text("^[a-z]+$", least=7) == "aaaaaaa"
    assert find_text("^[A-Z]{2}-[0-9]{3}$") == "AA-111"
    assert find_text("^a{3}$", most=2) is None


@pytest.mark.parametrize(
    "pattern", [r"\bword", "(?=a)b", r"\p{L}", "(?i)a", "a**", "[[:alpha:]]", "(^a)b", "a" * 1_000]
)
def test_what_is_not_understood_is_never_compared(pattern: str) -> None:
    with pytest.raises(UnsupportedPattern):
        find_text(pattern)
    assert not is_pattern_within(pattern, pattern + "?")


def test_spaces_are_those_of_the_engine() -> None:
    takes = compile_schema({"pattern": r"^\s$"}, root_object=False).is_valid
    letters = [chr(point) for point in range(0x10000) if not 0xD800 <= point < 0xE000]
    spaces = "".join(letter for letter in letters if takes(letter))

    assert all(not is_pattern_within(r"^\s$", f"^[^{letter}]$") for letter in spaces)
    assert is_pattern_within(r"^\s$", f"^[{spaces}]$")
    assert is_pattern_within(f"^[{spaces}]$", r"^\s$")
