"""Walks through JSON as bytes: where each value begins and ends, without decoding any of it.

A result of 50 MB would become several hundred MB of Python objects. Here a long string is one match of a regular expression
whose repetitions are possessive, so that it needs no memory for what it could undo; a container costs one step for each bracket
inside. The bytes have been read or written by a JSON library before, so they are taken to be valid.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

STEPS_LIMIT: Final = 5_000_000
"""About two seconds of a thread, enough for 50 MB of small rows. A result that is nothing but brackets has more, and is not worth
it.
"""

_STRING: Final = rb'"(?:[^"\\]++|\\.)*+"'
_is_string: Final = re.compile(_STRING, re.DOTALL)
_to_bracket: Final = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+[\[\]{}]", re.DOTALL)
_scalar: Final = re.compile(rb"[^,\]\}\s]*+")
_space: Final = re.compile(rb"[ \t\r\n]*+")

# Whole characters of a string, in front of which it may be cut: plain ASCII, escapes, both halves of an escaped surrogate pair,
# and UTF-8 sequences.
_characters: Final = re.compile(
    rb"(?:[^\"\\\x80-\xff]++|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[^u]"
    rb"|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})*+",
    re.DOTALL,
)
_high_surrogate: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")

QUOTE, OBJECT, ARRAY = b'"'[0], b"{"[0], b"["[0]
_OPENING: Final = frozenset((OBJECT, ARRAY))


class TooManySteps(Exception):
    """JSON with so many brackets that walking through it would take too long."""


class JsonMember(NamedTuple):
    """A value inside a container, and its key in an object: positions in the bytes."""

    key: tuple[int, int] | None
    start: int
    end: int


class Scanner:
    """Walks through one JSON text; `STEPS_LIMIT` counts for all walks together."""

    def __init__(self, data: bytes, steps_limit: int = STEPS_LIMIT) -> None:
        self.data = data
        self._steps = steps_limit

    def skip(self, start: int) -> int:
        """Return where the value ends that begins here. Raises `TooManySteps`."""
        first = self.data[start]
        if first == QUOTE:
            return _end(_is_string.match(self.data, start))
        if first not in _OPENING:
            return _end(_scalar.match(self.data, start))
        at, depth = start + 1, 1
        while depth:
            self._count()
            at = _end(_to_bracket.match(self.data, at))
            depth += 1 if self.data[at - 1] in _OPENING else -1
        return at

    def members(self, start: int) -> Iterator[JsonMember]:
        """Yield what is in the container that begins here, as it is found. Raises `TooManySteps`."""
        is_object = self.data[start] == OBJECT
        at = self.after_space(start + 1)
        while self.data[at] not in b"]}":
            self._count()
            key = None
            if is_object:
                key = (at, _end(_is_string.match(self.data, at)))
                at = self.after_space(self.after_space(key[1]) + 1)
            end = self.skip(at)
            yield JsonMember(key, at, end)
            at = self.after_space(end)
            if self.data[at] == b","[0]:
                at = self.after_space(at + 1)

    def after_space(self, at: int) -> int:
        """Return the position of the next byte that is no white space."""
        return _end(_space.match(self.data, at))

    def _count(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise TooManySteps


def end_of_characters(data: bytes, start: int, end: int) -> int:
    """Return the last position up to `end` at which the inside of a JSON string can be cut: not in a character or an escape."""
    at = _end(_characters.match(data, start, end))
    # A half that stands alone may be the first of a pair whose second half is behind the end.
    if (half := _high_surrogate.search(data, max(start, at - 6), at)) is not None and at < len(data):
        return half.start()
    return at


def _end(found: "re.Match[bytes] | None") -> int:
    if found is None:
        raise ValueError("not JSON")
    return found.end()
