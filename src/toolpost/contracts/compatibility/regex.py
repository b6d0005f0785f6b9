"""Regular expressions as sets of texts: whether one matches all that another matches, and a text that shows it if not.

A pattern is parsed into a term, and followed character by character through its derivatives (Brzozowski 1964): the derivative of
`ab|ac` by `a` is `b|c`. Two patterns are followed side by side; if no pair of derivatives is reachable where the first accepts
the empty text and the second does not, the second contains the first. `UnsupportedPattern` is raised for what is not regular
or not parsed (look-around, word boundaries, `\\p{…}`).
"""

import functools
import re
from collections import deque
from collections.abc import Iterable
from typing import Any

PATTERN_LIMIT = 300
WORK_LIMIT = 20_000
"""Terms visited, at about a microsecond each; `(a|b)*a(a|b){20}` would take forever."""

SEARCH_COST_S = 0.02
"""The most that one search takes, for the budget."""

Intervals = tuple[tuple[int, int], ...]
"""Sorted, disjoint ranges of code points, both ends included."""
Term = tuple[Any, ...]
"""A tuple of a tag and operands: `("character", intervals)`, `("sequence", first, rest)`, `("union", terms)`, `("repeat", …)`."""

_LAST_CODE_POINT = 0x10FFFF
_EMPTY_SET: Term = ("union", frozenset())
_EMPTY_TEXT: Term = ("empty",)
_ANY_CHARACTER: Term = ("character", ((0, _LAST_CODE_POINT),))
_ANY_TEXT: Term = ("repeat", _ANY_CHARACTER, 0, None)

_DIGITS: Intervals = ((48, 57),)
_WORDS: Intervals = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACES: Intervals = (
    (9, 13), (32, 32), (160, 160), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F),
    (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
)  # fmt: skip
_CLASSES = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11}
_COUNTS = re.compile(r"\{(\d{1,5})(?:(,)(\d{0,5}))?\}")
# Tried before other characters, so that examples are readable.
_READABLE = "aA1bzZ09-_ .@/:#"


class UnsupportedPattern(ValueError):
    """A pattern that cannot be parsed here, or is too large to be followed."""


def find_text(inside: str | None, outside: str | None = None, least: int = 0, most: int | None = None) -> str | None:
    """Return a shortest text that `inside` matches and `outside` does not; None if there is none.

    Either may be None: any text, and no text. Raises `UnsupportedPattern`.
    """
    found = _search_cached(inside, outside, least, most)
    if isinstance(found, UnsupportedPattern):
        raise found
    return found


@functools.lru_cache(maxsize=512)
def _search_cached(
    inside: str | None, outside: str | None, least: int, most: int | None
) -> str | UnsupportedPattern | None:
    try:
        return _search(inside, outside, least, most)
    except UnsupportedPattern as error:
        # Cached too: giving up takes the longest.
        return UnsupportedPattern(*error.args)
    except RecursionError:
        return UnsupportedPattern("nested too deeply")


def _search(inside: str | None, outside: str | None, least: int, most: int | None) -> str | None:
    # One character of each set that neither pattern distinguishes stands for all of them: otherwise there were a million.
    start = (_ANY_TEXT if inside is None else _parse(inside), _EMPTY_SET if outside is None else _parse(outside))
    characters = _representatives(start)
    # Breadth first, so that the first text found is a shortest one.
    waiting = deque([(start, "")])
    seen = {(start, 0)}
    work = 0
    while waiting:
        (one, other), text = waiting.popleft()
        if len(text) >= least and _is_nullable(one) and not _is_nullable(other):
            return text
        if most is not None and len(text) >= most:
            continue
        work += (_size(one) + _size(other)) * len(characters)
        if work > WORK_LIMIT:
            raise UnsupportedPattern("too many states")
        for character in characters:
            after = (_derive(one, ord(character)), _derive(other, ord(character)))
            # The length distinguishes states only up to `least`, or if there is a `most`.
            length = len(text) + 1 if most is not None else min(len(text) + 1, least)
            # Once `inside` matches nothing, no longer text can be a counterexample.
            if after[0] != _EMPTY_SET and (after, length) not in seen:
                seen.add((after, length))
                waiting.append((after, text + character))
    return None


def is_pattern_within(narrow: str, wide: str, *, least: int = 0, most: int | None = None) -> bool:
    """Return whether it is proven that `wide` matches every text, of these lengths, that `narrow` matches."""
    try:
        return find_text(narrow, wide, least, most) is None
    except UnsupportedPattern:
        return False


# Terms are normalized when they are made, so that equal derivatives are recognized.


def _make_union(terms: list[Term]) -> Term:
    found: set[Term] = set()
    for term in terms:
        found.update(term[1] if term[0] == "union" else (term,))
    if _ANY_TEXT in found:
        return _ANY_TEXT
    if len(found) == 1:
        return found.pop()
    return ("union", frozenset(found))


def _make_sequence(first: Term, rest: Term) -> Term:
    if _EMPTY_SET in (first, rest):
        return _EMPTY_SET
    if first == _EMPTY_TEXT:
        return rest
    if rest == _EMPTY_TEXT:
        return first
    return (
        ("sequence", first[1], _make_sequence(first[2], rest)) if first[0] == "sequence" else ("sequence", first, rest)
    )


def _make_repetition(term: Term, least: int, most: int | None) -> Term:
    if most == 0 or term == _EMPTY_TEXT:
        return _EMPTY_TEXT
    if term == _EMPTY_SET:
        return _EMPTY_SET if least else _EMPTY_TEXT
    return term if (least, most) == (1, 1) else ("repeat", term, least, most)


def _is_nullable(term: Term) -> bool:
    match term[0]:
        case "empty":
            return True
        case "character":
            return False
        case "union":
            return any(_is_nullable(inner) for inner in term[1])
        case "sequence":
            return _is_nullable(term[1]) and _is_nullable(term[2])
    return term[2] == 0 or _is_nullable(term[1])


def _derive(term: Term, character: int) -> Term:
    match term[0]:
        case "empty":
            return _EMPTY_SET
        case "character":
            return _EMPTY_TEXT if any(low <= character <= high for low, high in term[1]) else _EMPTY_SET
        case "union":
            return _make_union([_derive(inner, character) for inner in term[1]])
        case "sequence":
            found = _make_sequence(_derive(term[1], character), term[2])
            return _make_union([found, _derive(term[2], character)]) if _is_nullable(term[1]) else found
    # d(r{m,n}) = d(r) r{m-1,n-1}; for a nullable r too, because r{m-1} then includes fewer copies.
    _, inner, least, most = term
    again = _make_repetition(inner, max(0, least - 1), None if most is None else most - 1)
    return _make_sequence(_derive(inner, character), again)


def _size(term: Term) -> int:
    return 1 + sum(_size(inner) for inner in _operands_of(term))


def _operands_of(term: Term) -> Iterable[Term]:
    match term[0]:
        case "union":
            return frozenset(term[1])
        case "sequence":
            return term[1:]
    return (term[1],) if term[0] == "repeat" else ()


def _representatives(terms: tuple[Term, ...]) -> list[str]:
    """Return one character for each set of characters that the terms do not distinguish."""
    sets: set[Intervals] = set()
    waiting = [*terms]
    while waiting:
        term = waiting.pop()
        if term[0] == "character":
            sets.add(term[1])
        waiting.extend(_operands_of(term))
    bounds = {0, *(low for each in sets for low, _ in each), *(high + 1 for each in sets for _, high in each)}
    # Half of a surrogate pair is not a character.
    points = [
        *map(ord, _READABLE),
        *sorted(bound for bound in bounds if bound <= _LAST_CODE_POINT and not 0xD800 <= bound < 0xE000),
    ]
    if any(0xD800 <= bound < 0xE000 for bound in bounds):
        raise UnsupportedPattern("surrogates")
    found: dict[tuple[bool, ...], str] = {}
    for point in points:
        mark = tuple(any(low <= point <= high for low, high in each) for each in sets)
        found.setdefault(mark, chr(point))
    return list(found.values())


# Parsing


@functools.lru_cache(maxsize=512)
def _parse(pattern: str) -> Term:
    """Parse a pattern into a term of all texts in which it is found."""
    if len(pattern) > PATTERN_LIMIT:
        raise UnsupportedPattern("too long")
    parser = _PatternParser(pattern)
    branches = [parser.parse_branch()]
    while parser.take("|"):
        branches.append(parser.parse_branch())
    if parser.position < len(pattern):
        raise UnsupportedPattern("brackets")
    return _make_union(branches)


class _PatternParser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.position = 0

    def take(self, text: str) -> bool:
        is_there = self._pattern.startswith(text, self.position)
        self.position += len(text) if is_there else 0
        return is_there

    def parse_branch(self) -> Term:
        """Parse an alternative at the top level; anchors are supported only at its ends."""
        start = _EMPTY_TEXT if self.take("^") else _ANY_TEXT
        body = self._parse_sequence()
        end = _EMPTY_TEXT if self.take("$") else _ANY_TEXT
        if self.position < len(self._pattern) and self._pattern[self.position] != "|":
            raise UnsupportedPattern("an anchor inside")
        return _make_sequence(start, _make_sequence(body, end))

    def _parse_sequence(self) -> Term:
        terms: list[Term] = []
        while self.position < len(self._pattern) and self._pattern[self.position] not in "|)$":
            terms.append(self._parse_repetition(self._parse_atom()))
        return functools.reduce(lambda rest, term: _make_sequence(term, rest), reversed(terms), _EMPTY_TEXT)

    def _parse_group(self) -> Term:
        if self._pattern.startswith("?", self.position) and not self.take("?:"):
            raise UnsupportedPattern("a group of another kind")
        branches = [self._parse_sequence()]
        while self.take("|"):
            branches.append(self._parse_sequence())
        if not self.take(")"):
            raise UnsupportedPattern("an anchor inside, or a group without an end")
        return _make_union(branches)

    def _parse_repetition(self, term: Term) -> Term:
        counts: tuple[int, int | None] | None = None
        if found := _COUNTS.match(self._pattern, self.position):
            self.position = found.end()
            counts = int(found[1]), int(found[1]) if not found[2] else int(found[3]) if found[3] else None
        else:
            for sign, meaning in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
                if counts is None and self.take(sign):
                    counts = meaning
        if counts is None:
            return term
        # A lazy repetition matches the same texts.
        self.take("?")
        if self._pattern[self.position : self.position + 1] in ("*", "+", "?", "{"):
            raise UnsupportedPattern("a repetition of a repetition")
        if counts[1] is not None and counts[0] > counts[1]:
            raise UnsupportedPattern("a repetition that cannot be")
        return _make_repetition(term, *counts)

    def _parse_atom(self) -> Term:
        character = self._pattern[self.position]
        self.position += 1
        if character == "(":
            return self._parse_group()
        if character == "[":
            return ("character", self._parse_class())
        if character == ".":
            return ("character", _complement(((10, 10),)))
        if character == "\\":
            return ("character", self._parse_escape())
        if character in "^*+?{}]":
            raise UnsupportedPattern(f"{character} is not understood here")
        return ("character", ((ord(character), ord(character)),))

    def _parse_escape(self) -> Intervals:
        character = self._pattern[self.position : self.position + 1]
        self.position += 1
        if character.lower() in _CLASSES:
            found = _CLASSES[character.lower()]
            return found if character.islower() else _complement(found)
        if character in _CONTROLS:
            return ((_CONTROLS[character], _CONTROLS[character]),)
        if not character or character.isalnum() or not character.isascii():
            raise UnsupportedPattern(f"\\{character} is not understood here")
        return ((ord(character), ord(character)),)

    def _parse_class(self) -> Intervals:
        is_denied = self.take("^")
        found: list[tuple[int, int]] = []
        while not self.take("]"):
            first = self._parse_member()
            if self._pattern.startswith("-", self.position) and not self._pattern.startswith("-]", self.position):
                self.position += 1
                last = self._parse_member()
                is_range = len(first) == len(last) == 1 and first[0][0] == first[0][1] and last[0][0] == last[0][1]
                if not is_range or first[0][0] > last[0][0]:
                    raise UnsupportedPattern("a range that cannot be")
                first = ((first[0][0], last[0][0]),)
            found.extend(first)
        if not found:
            raise UnsupportedPattern("an empty class")
        return _complement(_merge_intervals(found)) if is_denied else _merge_intervals(found)

    def _parse_member(self) -> Intervals:
        character = self._pattern[self.position : self.position + 1]
        # Some engines read two of these as a set operation.
        is_operator = character in ("&", "-", "~") and self._pattern[self.position + 1 : self.position + 2] == character
        if character in ("", "[", "^") or is_operator:
            raise UnsupportedPattern("a class that engines read in different ways")
        self.position += 1
        return self._parse_escape() if character == "\\" else ((ord(character), ord(character)),)


def _merge_intervals(intervals: list[tuple[int, int]]) -> Intervals:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(intervals):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def _complement(intervals: Intervals) -> Intervals:
    found, low = [], 0
    for start, end in intervals:
        if start > low:
            found.append((low, start - 1))
        low = end + 1
    return (*found, (low, _LAST_CODE_POINT)) if low <= _LAST_CODE_POINT else tuple(found)
