"""The known name that was probably meant. Case and separators never matter."""

import difflib
import functools
import re
from collections.abc import Iterable, Sequence

from toolpost.base.words import split_words

NAMES_COMPARED = 200
"""Both the name and the list may come from outside: only so many are compared."""

PAIRS_COMPARED = 400
PAIRS_GUESSED = 200
"""With many unknown names, each is compared with fewer: a comparison takes up to 100 µs, a guess twice that."""

_SEPARATORS = re.compile(r"[\W_]+")
_LENGTH_COMPARED = 64

_SAME_WORDS = 10
_GUESS = 20
_FAR = 1_000


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the nearest known name, None if none is near."""
    return next(iter(nearest_names(name, known, 1)), None)


def nearest_names(name: str, known: Iterable[str], limit: int) -> list[str]:
    """Return the known names that are near, nearest first."""
    # A set has no fixed order, and suggestions must be reproducible.
    ordered = sorted(known) if isinstance(known, set | frozenset) else list(known)
    return _rank(name, ordered, may_guess=True)[:limit]


def correct_spelling(name: str, known: Sequence[str]) -> str | None:
    """Return the known name that this one misspells, None if there is none; unlike `nearest_name`, without guessing."""
    return next(iter(_rank(name, known[:NAMES_COMPARED], may_guess=False)), None)


def match_names(unknown: Sequence[str], known: Iterable[str], missing: Iterable[str]) -> dict[str, str]:
    """Map unknown names to their nearest known ones, each known one once; missing names are preferred."""
    wanted = set(missing)
    compared = list(dict.fromkeys([*missing, *known]))[: min(NAMES_COMPARED, PAIRS_COMPARED // max(1, len(unknown)))]
    may_guess = len(unknown) * len(wanted) <= PAIRS_GUESSED
    pairs = [
        (_distance(sent, name, may_guess=may_guess and name in wanted), name not in wanted, number, sent, name)
        for sent in unknown
        for number, name in enumerate(compared)
    ]
    matched: dict[str, str] = {}
    for distance, _, _, sent, name in sorted(pairs):
        if distance < _FAR and sent not in matched and name not in matched.values():
            matched[sent] = name
    return matched


def _rank(name: str, known: Sequence[str], *, may_guess: bool) -> list[str]:
    distances = [(_distance(name, other, may_guess=may_guess), number) for number, other in enumerate(known)]
    return [known[number] for distance, number in sorted(distances) if distance < _FAR]


def _distance(sent: str, known: str, *, may_guess: bool) -> int:
    # Cut before it is the key of a cache: a caller may send names of megabytes.
    sent, known = sent[:_LENGTH_COMPARED], known[:_LENGTH_COMPARED]
    a, b = _plain(sent), _plain(known)
    if a == b:
        return 0
    length = max(len(a), len(b))
    edits = _edit_distance(a, b, 0 if length < 3 else 1 if length < 6 else 2 if length < 10 else 3)
    if edits < _FAR:
        return edits
    if min(len(a), len(b)) >= 3 and (_shares_words(sent, known) or a.startswith(b) or b.startswith(a)):
        return _SAME_WORDS
    return _guess_distance(a, b) if may_guess else _FAR


@functools.lru_cache(maxsize=1024)
def _plain(name: str) -> str:
    return _SEPARATORS.sub("", name).lower()


def _shares_words(sent: str, known: str) -> bool:
    one, other = _words(sent), _words(known)
    return bool(one and other) and (one <= other or other <= one)


@functools.lru_cache(maxsize=1024)
def _words(name: str) -> frozenset[str]:
    return frozenset(split_words(name))


def _guess_distance(a: str, b: str) -> int:
    # The lengths alone rule out most pairs, before a matcher is built.
    if 2 * min(len(a), len(b)) < 0.6 * (len(a) + len(b)):
        return _FAR
    matcher = difflib.SequenceMatcher(None, a, b)
    if matcher.quick_ratio() < 0.6 or (ratio := matcher.ratio()) < 0.6:
        return _FAR
    return _GUESS + round(100 * (1 - ratio))


def _edit_distance(a: str, b: str, limit: int) -> int:
    """Count the characters to insert, delete, replace or swap with their neighbor; `_FAR` beyond the limit."""
    # An edit changes the length by at most one and the set of characters by two: this rules out most pairs.
    if abs(len(a) - len(b)) > limit or len(set(a) ^ set(b)) > 2 * limit:
        return _FAR
    beyond = limit + 1
    above: list[int] = []
    before: list[int] = []
    row = [min(j, beyond) for j in range(len(b) + 1)]
    for i, letter in enumerate(a, 1):
        above, before, row = before, row, [beyond] * (len(b) + 1)
        row[0] = min(i, beyond)
        # Cells farther from the diagonal than the limit have more edits than that.
        for j in range(max(1, i - limit), min(len(b), i + limit) + 1):
            other = b[j - 1]
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                best = min(best, above[j - 2] + 1)
            row[j] = min(best, beyond)
        if min(row) > limit and min(before) > limit:
            return _FAR
    return row[-1] if row[-1] <= limit else _FAR
