"""Why a tool was found: which of its words, in which of its fields, the request has too."""

import re
from collections.abc import Sequence

from toolpost.discovery.search.clauses import Request
from toolpost.discovery.search.document import Document
from toolpost.discovery.search.fields import fields_of
from toolpost.discovery.search.ranking import Match
from toolpost.discovery.search.synonyms import SYNONYMS
from toolpost.discovery.search.words import words_of

_RUNS = re.compile(r"[^\W_]+")


def matches_of(request: Request, document: Document) -> Sequence[Match]:
    """Return the words that match, field by field, as the tool writes them; no text of a server's instructions."""
    wanted = set(request.words).union(*(SYNONYMS.get(word, ()) for word in request.words))
    found = []
    for field, text in fields_of(document).items():
        if field == "server description":
            # Untrusted instructions are indexed and never shown: the words are given as the request has them.
            words = sorted(wanted.intersection(words_of(text)))
        else:
            words = [run for run in _RUNS.findall(text) if not wanted.isdisjoint(words_of(run))]
        if words:
            found.append(Match(field=field, words=tuple(dict.fromkeys(words))))
    return found
