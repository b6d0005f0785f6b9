"""Patterns as sets of texts: whether one pattern takes all that another takes, and a text that shows it if not.

A pattern is read into a term, and followed letter by letter through its derivatives (Brzozowski 1964): the derivative of
`ab|ac` by `a` is `b|c`. Two patterns are followed side by side; where no text is left that one takes and the other does
not, one contains the other. What is not regular or not understood (look-around, word boundaries, `\\p{…}`) is refused.
"""

import functools
import re
from collections import deque
from collections.abc import Iterable
from typing import Any

PATTERN_LIMIT = 300
WORK_LIMIT = 20_000
"""Parts of terms looked at, at about a microsecond each; `(a|b)*a(a|b){20}` would have no end."""

FOLLOWED_S = 0.02
"""What it may take to follow two patterns, at the most."""

Intervals = tuple[tuple[int, int], ...]
Term = tuple[Any, ...]

_LAST = 0x10FFFF
_NOTHING: Term = ("any of", frozenset())
_END: Term = ("end",)
_LETTER: Term = ("letter", ((0, _LAST),))
_ALL: Term = ("repeat", _LETTER, 0, None)

_DIGITS: Intervals = ((48, 57),)
_WORDS: Intervals = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACES: Intervals = (
    (9, 13), (32, 32), (160, 160), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F),
    (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
)  # fmt: skip
_CLASSES = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11}
_COUNTS = re.compile(r"\{(\d{1,5})(?:(,)(\d{0,5}))?\}")
# Letters that people like to read, tried before others.
_PLEASANT = "aA1bzZ09-_ .@/:#"


class NotRegular(ValueError):
    """A pattern that is not understood here, or too large to be followed."""


def find_text(inside: str | None, outside: str | None = None, least: int = 0, most: int | None = None) -> str | None:
    """Return a shortest text that one pattern takes and the other, if any, does not; None if there is none.

    Raises `NotRegular` where that cannot be found out.
    """
    found = _find(inside, outside, least, most)
    if isinstance(found, NotRegular):
        raise found
    return found


@functools.lru_cache(maxsize=512)
def _find(inside: str | None, outside: str | None, least: int, most: int | None) -> str | NotRegular | None:
    try:
        return _follow_reference(inside, outside, least, most)
    except NotRegular as error:
        # Remembered too: to give up takes the longest.
        return NotRegular(*error.args)
    except RecursionError:
        return NotRegular("nested too deeply")


def _follow_reference(inside: str | None, outside: str | None, least: int, most: int | None) -> str | None:
    start = (_ALL if inside is None else _read(inside), _NOTHING if outside is None else _read(outside))
    letters = _representatives(start)
    waiting = deque([(start, "")])
    seen = {(start, 0)}
    work = 0
    while waiting:
        (one, other), text = waiting.popleft()
        if len(text) >= least and _may_end(one) and not _may_end(other):
            return text
        if most is not None and len(text) >= most:
            continue
        work += (_size(one) + _size(other)) * len(letters)
        if work > WORK_LIMIT:
            raise NotRegular("too many states")
        for letter in letters:
            after = (_derive(one, ord(letter)), _derive(other, ord(letter)))
            # Lengths matter up to the least, or where there is a most.
            length = len(text) + 1 if most is not None else min(len(text) + 1, least)
            if after[0] != _NOTHING and (after, length) not in seen:
                seen.add((after, length))
                waiting.append((after, text + letter))
    return None


def is_within(narrow: str, wide: str, *, least: int = 0, most: int | None = None) -> bool:
    """Say whether it is proven that a pattern takes every text, of these lengths, that another takes."""
    try:
        return find_text(narrow, wide, least, most) is None
    except NotRegular:
        return False


# Terms: each is made in one form, so that equal ones are met again.


def _alternatives(terms: list[Term]) -> Term:
    found: set[Term] = set()
    for term in terms:
        found.update(term[1] if term[0] == "any of" else (term,))
    if _ALL in found:
        return _ALL
    if len(found) == 1:
        return found.pop()
    return ("any of", frozenset(found))


def _chain(first: Term, rest: Term) -> Term:
    if _NOTHING in (first, rest):
        return _NOTHING
    if first == _END:
        return rest
    if rest == _END:
        return first
    return ("chain", first[1], _chain(first[2], rest)) if first[0] == "chain" else ("chain", first, rest)


def _repeat(term: Term, least: int, most: int | None) -> Term:
    if most == 0 or term == _END:
        return _END
    if term == _NOTHING:
        return _NOTHING if least else _END
    return term if (least, most) == (1, 1) else ("repeat", term, least, most)


def _may_end(term: Term) -> bool:
    match term[0]:
        case "end":
            return True
        case "letter":
            return False
        case "any of":
            return any(_may_end(inner) for inner in term[1])
        case "chain":
            return _may_end(term[1]) and _may_end(term[2])
    return term[2] == 0 or _may_end(term[1])


def _derive(term: Term, letter: int) -> Term:
    match term[0]:
        case "end":
            return _NOTHING
        case "letter":
            return _END if any(low <= letter <= high for low, high in term[1]) else _NOTHING
        case "any of":
            return _alternatives([_derive(inner, letter) for inner in term[1]])
        case "chain":
            found = _chain(_derive(term[1], letter), term[2])
            return _alternatives([found, _derive(term[2], letter)]) if _may_end(term[1]) else found
    _, inner, least, most = term
    again = _repeat(inner, max(0, least - 1), None if most is None else most - 1)
    return _chain(_derive(inner, letter), again)


def _size(term: Term) -> int:
    return 1 + sum(_size(inner) for inner in _inside(term))


def _inside(term: Term) -> Iterable[Term]:
    match term[0]:
        case "any of":
            return frozenset(term[1])
        case "chain":
            return term[1:]
    return (term[1],) if term[0] == "repeat" else ()


def _representatives(terms: tuple[Term, ...]) -> list[str]:
    """Return one letter for each set of letters that no part of the terms tells apart."""
    sets: set[Intervals] = set()
    waiting = [*terms]
    while waiting:
        term = waiting.pop()
        if term[0] == "letter":
            sets.add(term[1])
        waiting.extend(_inside(term))
    bounds = {0, *(low for each in sets for low, _ in each), *(high + 1 for each in sets for _, high in each)}
    # Half of a surrogate pair is no letter.
    points = [
        *map(ord, _PLEASANT),
        *sorted(bound for bound in bounds if bound <= _LAST and not 0xD800 <= bound < 0xE000),
    ]
    if any(0xD800 <= bound < 0xE000 for bound in bounds):
        raise NotRegular("surrogates")
    found: dict[tuple[bool, ...], str] = {}
    for point in points:
        mark = tuple(any(low <= point <= high for low, high in each) for each in sets)
        found.setdefault(mark, chr(point))
    return list(found.values())


# Reading


@functools.lru_cache(maxsize=512)
def _read(pattern: str) -> Term:
    """Read a pattern into a term of all texts in which it is found."""
    if len(pattern) > PATTERN_LIMIT:
        raise NotRegular("too long")
    reader = _Reader(pattern)
    branches = [reader.branch()]
    while reader.take("|"):
        branches.append(reader.branch())
    if reader.place < len(pattern):
        raise NotRegular("brackets")
    return _alternatives(branches)


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.place = 0

    def take(self, text: str) -> bool:
        is_there = self._pattern.startswith(text, self.place)
        self.place += len(text) if is_there else 0
        return is_there

    def branch(self) -> Term:
        """Read a branch of the whole pattern; only there an anchor is understood, at its ends."""
        start = _END if self.take("^") else _ALL
        body = self._sequence()
        end = _END if self.take("$") else _ALL
        if self.place < len(self._pattern) and self._pattern[self.place] != "|":
            raise NotRegular("an anchor inside")
        return _chain(start, _chain(body, end))

    def _sequence(self) -> Term:
        terms: list[Term] = []
        while self.place < len(self._pattern) and self._pattern[self.place] not in "|)$":
            terms.append(self._read_repetition(self._atom()))
        return functools.reduce(lambda rest, term: _chain(term, rest), reversed(terms), _END)

    def _group(self) -> Term:
        if self._pattern.startswith("?", self.place) and not self.take("?:"):
            raise NotRegular("a group of another kind")
        branches = [self._sequence()]
        while self.take("|"):
            branches.append(self._sequence())
        if not self.take(")"):
            raise NotRegular("an anchor inside, or a group without an end")
        return _alternatives(branches)

    def _read_repetition(self, term: Term) -> Term:
        counts: tuple[int, int | None] | None = None
        if found := _COUNTS.match(self._pattern, self.place):
            self.place = found.end()
            counts = int(found[1]), int(found[1]) if not found[2] else int(found[3]) if found[3] else None
        else:
            for sign, meaning in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
                if counts is None and self.take(sign):
                    counts = meaning
        if counts is None:
            return term
        # A lazy repetition takes the same texts.
        self.take("?")
        if self._pattern[self.place : self.place + 1] in ("*", "+", "?", "{"):
            raise NotRegular("a repetition of a repetition")
        if counts[1] is not None and counts[0] > counts[1]:
            raise NotRegular("a repetition that cannot be")
        return _repeat(term, *counts)

    def _atom(self) -> Term:
        letter = self._pattern[self.place]
        self.place += 1
        if letter == "(":
            return self._group()
        if letter == "[":
            return ("letter", self._class())
        if letter == ".":
            return ("letter", _without(((10, 10),)))
        if letter == "\\":
            return ("letter", self._read_escape())
        if letter in "^*+?{}]":
            raise NotRegular(f"{letter} is not understood here")
        return ("letter", ((ord(letter), ord(letter)),))

    def _read_escape(self) -> Intervals:
        letter = self._pattern[self.place : self.place + 1]
        self.place += 1
        if letter.lower() in _CLASSES:
            found = _CLASSES[letter.lower()]
            return found if letter.islower() else _without(found)
        if letter in _CONTROLS:
            return ((_CONTROLS[letter], _CONTROLS[letter]),)
        if not letter or letter.isalnum() or not letter.isascii():
            raise NotRegular(f"\\{letter} is not understood here")
        return ((ord(letter), ord(letter)),)

    def _class(self) -> Intervals:
        is_denied = self.take("^")
        found: list[tuple[int, int]] = []
        while not self.take("]"):
            first = self._member()
            if self._pattern.startswith("-", self.place) and not self._pattern.startswith("-]", self.place):
                self.place += 1
                last = self._member()
                is_range = len(first) == len(last) == 1 and first[0][0] == first[0][1] and last[0][0] == last[0][1]
                if not is_range or first[0][0] > last[0][0]:
                    raise NotRegular("a range that cannot be")
                first = ((first[0][0], last[0][0]),)
            found.extend(first)
        if not found:
            raise NotRegular("an empty class")
        return _without(_merge_intervals(found)) if is_denied else _merge_intervals(found)

    def _member(self) -> Intervals:
        letter = self._pattern[self.place : self.place + 1]
        # Some engines take two of these for set operations.
        is_operator = letter in ("&", "-", "~") and self._pattern[self.place + 1 : self.place + 2] == letter
        if letter in ("", "[", "^") or is_operator:
            raise NotRegular("a class that engines read in different ways")
        self.place += 1
        return self._read_escape() if letter == "\\" else ((ord(letter), ord(letter)),)


def _merge_intervals(intervals: list[tuple[int, int]]) -> Intervals:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(intervals):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def _without(intervals: Intervals) -> Intervals:
    found, low = [], 0
    for start, end in intervals:
        if start > low:
            found.append((low, start - 1))
        low = end + 1
    return (*found, (low, _LAST)) if low <= _LAST else tuple(found)
