"""The regular expressions of a schema, and the estimated size of each once every repetition is written out."""

import re
from collections.abc import Iterator

from toolpost.base.ids import JsonObject
from toolpost.contracts.subschemas import to_pointer

_REPEATED = re.compile(r"\{(\d{1,6})(?:,(\d{0,6}))?\}")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*+\]", re.DOTALL)
_NAMED_CLASS = re.compile(r"\\[pP]\{[^}]{0,64}+\}")
_WIDE = 60
"""A class such as `\\w` covers all of Unicode, and counts as this many characters."""

_NAMED = 600
"""As `_WIDE`, for a Unicode property: `\\p{L}`."""

_SIZE_LIMIT = 10**9
"""Larger sizes make no difference: without a limit, nested repetitions would be a number of many digits."""


def patterns_of(schema: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield the patterns of one schema with their places, without those of the schemas inside it."""
    if isinstance(pattern := schema.get("pattern"), str):
        yield "/pattern", pattern
    if isinstance(named := schema.get("patternProperties"), dict):
        for pattern in named:
            yield to_pointer(("patternProperties", pattern)), pattern


def estimate_pattern_size(pattern: str) -> int:
    """Return about how many states the automaton of a pattern has."""
    sizes, place, last = [0], 0, 0
    # After the first class that is never closed, none is: searching again at every bracket would take quadratic time.
    is_closed = True
    while place < len(pattern):
        letter = pattern[place]
        if letter == "(":
            sizes[-1] += last
            sizes.append(0)
            last = 0
        elif letter == ")" and len(sizes) > 1:
            last += sizes.pop()
        elif letter == "{" and (found := _REPEATED.match(pattern, place)):
            times = int(found[2] or found[1]) if found[2] != "" else int(found[1]) + 1
            last = min(last * max(1, times), _SIZE_LIMIT)
            place = found.end() - 1
        elif letter == "[" and is_closed and (is_closed := bool(found := _CLASS.match(pattern, place))) and found:
            sizes[-1], last = sizes[-1] + last, 1 + _atom_size(found[0])
            place = found.end() - 1
        elif letter == "\\" and (found := _NAMED_CLASS.match(pattern, place)):
            sizes[-1], last = sizes[-1] + last, _NAMED
            place = found.end() - 1
        else:
            is_escape = letter == "\\" and place + 1 < len(pattern)
            sizes[-1], last = sizes[-1] + last, _atom_size(pattern[place : place + 2] if is_escape else letter)
            place += is_escape
        place += 1
    size = sum(sizes) + last
    # Case-insensitive: most characters have two or more forms.
    return 4 * size if "(?i" in pattern else size


def _atom_size(atom: str) -> int:
    if "\\p" in atom or "\\P" in atom:
        return _NAMED * (atom.count("\\p") + atom.count("\\P"))
    return _WIDE if "\\" in atom or "^" in atom or atom == "." else 1
