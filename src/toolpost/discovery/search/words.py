"""Text as words that can be compared: letter case, endings and writing systems evened out."""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

_RUNS = re.compile(r"[^\W_]+")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+"
)
"""Scripts without spaces, or whose words carry their grammar: compared by pairs of letters."""

_LONGEST = 40

_SAYING_NOTHING = """
a able about all also am an and any are as at be because been being but by can could did do does doing dont for from give had has
have having he help her here hers him his how i id if im in into is it its itself ive just know let like may me might more most
must my myself need of on only or other our ours please shall she should show so some such tell than that the their them then
there these they this those to too us very want was we were what when where which while who whom why will with would you your
yours
"""

STOP_WORDS = frozenset(_SAYING_NOTHING.split())
"""Words that say nothing of what is needed."""


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a text, each in its basic form; `GitHub` is `github`, `git` and `hub`."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    for run in _RUNS.findall(text):
        yield from _forms(run[:_LONGEST])


@lru_cache(maxsize=65536)
def _forms(run: str) -> tuple[str, ...]:
    if not run.isascii():
        return _foreign_forms(run)
    parts = _PARTS.findall(run)
    whole = run.lower()
    if len(parts) < 2:
        return _kept((whole,))
    return _kept((whole, *(part.lower() for part in parts if len(part) > 1)))


def _foreign_forms(run: str) -> tuple[str, ...]:
    found: list[str] = []
    for stretch in _UNSPACED.findall(run):
        found += [stretch[start : start + 2] for start in range(max(1, len(stretch) - 1))]
    spaced = _UNSPACED.sub(" ", run).casefold()
    bare = "".join(letter for letter in unicodedata.normalize("NFKD", spaced) if not unicodedata.combining(letter))
    found += _kept(tuple(bare.split()))
    return tuple(found)


def _kept(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(stem(word) for word in words if word not in STOP_WORDS)


def stem(word: str) -> str:
    """Take an English word's ending off; wrong now and then, but the same way on both sides."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-2] if word.endswith(("sses", "shes", "ches", "xes", "zes")) else word[:-1]
    for ending in ("ing", "ed"):
        if len(word) > len(ending) + 3 and word.endswith(ending):
            word = word[: -len(ending)]
            return word[:-1] if word[-1] == word[-2] and word[-1] not in "ls" else word.removesuffix("e")
    return word.removesuffix("e") if len(word) > 3 else word
