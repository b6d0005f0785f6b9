"""Words of code and prose: identifiers split at their humps and underscores, and kept whole."""

import re
from functools import lru_cache
from typing import Final

WORD: Final = re.compile(r"\w+")
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
LONGEST: Final = 64
"""Characters; what is longer is no word that anybody looks for."""


@lru_cache(maxsize=1 << 16)
def parts_of(identifier: str) -> tuple[str, ...]:
    """Split one identifier: `getHTTPUser_by2` is get, http, user, by, 2."""
    return tuple(part.lower() for part in _PART.findall(identifier))


@lru_cache(maxsize=1 << 18)
def _compound(word: str) -> str:
    """Write a word of several parts as those; any other word is indexed as it is, and nothing here."""
    parts = parts_of(word) if len(word) <= LONGEST else ()
    return " ".join(parts) if len(parts) > 1 else ""


def compound_parts(text: str) -> str:
    """Return the parts of every compound identifier of a text: whole words are indexed beside them."""
    return " ".join(filter(None, map(_compound, set(WORD.findall(text)))))


def spelled(name: str) -> str:
    """Write a name as words."""
    return " ".join(part for word in WORD.findall(name) for part in parts_of(word))
