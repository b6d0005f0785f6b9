"""A request taken apart: long ones ask for several things, each found best alone."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from toolpost.discovery.search.words import words_of

LONGEST_QUERY = 4000
"""How many characters of a query are read."""

_MOST_WORDS = 512
_MOST_CLAUSES = 12
_LEAST_WORDS = 3
_BREAKS = re.compile(r"[.?!](?=\s|$)|[;\n\u3002\uff01\uff1f]")


@dataclass(frozen=True, slots=True)
class Request:
    """A query as it is searched for: its whole text first, then its clauses; and the different words of each."""

    texts: Sequence[str]
    words: Sequence[str]
    words_by_text: Sequence[frozenset[str]]

    @classmethod
    def of(cls, query: str) -> "Request":
        """Read a query."""
        query = query[:LONGEST_QUERY]
        texts = [query, *clauses_of(query)]
        words = dict.fromkeys(islice(words_of(query), _MOST_WORDS))
        return cls(texts, list(words), [frozenset(words), *(frozenset(words_of(text)) for text in texts[1:])])


def clauses_of(query: str) -> list[str]:
    """Return the sentences of a query, if there are several."""
    parts = [part.strip() for part in _BREAKS.split(query[:LONGEST_QUERY])]
    kept = [part for part in parts if len(part.split()) >= _LEAST_WORDS]
    return kept[:_MOST_CLAUSES] if len(kept) > 1 else []
