"""A query as it is searched for, and which words of a tool match it.

A long query often asks for several things. Each of its sentences ("clause") is scored apart as well, because a tool that fits
one of them perfectly fits the whole query badly.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from toolpost.discovery.search.document import ToolDocument, fields_of
from toolpost.discovery.search.ranking import Match
from toolpost.discovery.search.words import SYNONYMS, words_of

MAX_QUERY_CHARS = 4000
"""The rest of a query is ignored."""

_MAX_WORDS = 512
_MAX_CLAUSES = 12
_MIN_CLAUSE_WORDS = 3
_CLAUSE_END = re.compile(r"[.?!](?=\s|$)|[;\n\u3002\uff01\uff1f]")
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query and its clauses."""

    texts: Sequence[str]
    """The whole query, then its clauses if it has several."""
    words: Sequence[str]
    """The distinct words of the whole query, in order."""
    words_by_text: Sequence[frozenset[str]]
    """The distinct words of each of `texts`."""

    @classmethod
    def parse(cls, query: str) -> "ParsedQuery":
        query = query[:MAX_QUERY_CHARS]
        texts = [query, *clauses_of(query)]
        words = dict.fromkeys(islice(words_of(query), _MAX_WORDS))
        return cls(texts, list(words), [frozenset(words), *(frozenset(words_of(text)) for text in texts[1:])])


def clauses_of(query: str) -> list[str]:
    """Return the sentences of a query; an empty list if there is only one."""
    parts = [part.strip() for part in _CLAUSE_END.split(query[:MAX_QUERY_CHARS])]
    clauses = [part for part in parts if len(part.split()) >= _MIN_CLAUSE_WORDS]
    return clauses[:_MAX_CLAUSES] if len(clauses) > 1 else []


def find_matches(query: ParsedQuery, document: ToolDocument) -> Sequence[Match]:
    """Return the matching words of each field, spelled as the tool spells them."""
    wanted = set(query.words).union(*(SYNONYMS.get(word, ()) for word in query.words))
    matches = []
    for field, text in fields_of(document).items():
        if field == "server description":
            # Untrusted instructions are indexed and never shown: these words are spelled as in the query.
            words = sorted(wanted.intersection(words_of(text)))
        else:
            words = [word for word in _WORD.findall(text) if not wanted.isdisjoint(words_of(word))]
        if words:
            matches.append(Match(field=field, words=tuple(dict.fromkeys(words))))
    return matches
