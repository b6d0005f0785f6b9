"""The inverted index: which row has which word, and how much the word counts there.

BM25F is split in two. What depends on one document alone ("impact": term frequency, field boosts, length) is computed once,
here. How rare a word is depends on which documents the caller may see, and is computed for each query, in `scoring`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolpost.discovery.search.document import ToolDocument, fields_of
from toolpost.discovery.search.weights import Weights
from toolpost.discovery.search.words import words_of

Rows = NDArray[np.int32]
Numbers = NDArray[np.float32]


def impacts_of(document: ToolDocument, weights: Weights) -> dict[str, float]:
    """Return the impact of each word on this document, between 0 and 1."""
    sums: dict[str, float] = {}
    for field, text in fields_of(document).items():
        if not text:
            continue
        weight = weights.fields[field]
        counts = Counter(words_of(text))
        relative_length = counts.total() / weight.usual_words
        each = weight.boost / (1 - weight.length_penalty + weight.length_penalty * relative_length)
        for word, count in counts.items():
            sums[word] = sums.get(word, 0.0) + count * each
    return {word: amount / (amount + weights.saturation) for word, amount in sums.items()}


@dataclass(frozen=True, slots=True)
class Postings:
    """For each word the rows that contain it, and its impact there: two flat arrays, sorted by word."""

    spans: Mapping[str, tuple[int, int]]
    """The slice of `rows` and `impacts` that belongs to each word."""
    rows: Rows
    impacts: Numbers

    @classmethod
    def of(cls, documents: Iterable[Mapping[str, float]]) -> "Postings":
        """Index the impacts of documents by word; a document's row is its position."""
        term_ids: dict[str, int] = {}
        terms: list[int] = []
        rows: list[int] = []
        impacts: list[float] = []
        for row, words in enumerate(documents):
            terms += [term_ids.setdefault(word, len(term_ids)) for word in words]
            rows += [row] * len(words)
            impacts += words.values()
        return cls.sort(
            list(term_ids), np.array(terms, np.int32), np.array(rows, np.int32), np.array(impacts, np.float32)
        )

    @classmethod
    def sort(cls, words: Sequence[str], terms: Rows, rows: Rows, impacts: Numbers) -> "Postings":
        """Group postings by word; `terms` has the position in `words` of each posting's word."""
        order = np.argsort(terms, kind="stable")
        ends = np.cumsum(np.bincount(terms, minlength=len(words))).tolist()
        spans = {word: (start, end) for word, start, end in zip(words, [0, *ends], ends, strict=False)}
        return cls(spans, rows[order], impacts[order])

    def number_terms(self, term_ids: dict[str, int]) -> Rows:
        """Return the id of each posting's word; words that `term_ids` lacks are added to it."""
        terms = np.empty(len(self.rows), np.int32)
        for word, (start, end) in self.spans.items():
            terms[start:end] = term_ids.setdefault(word, len(term_ids))
        return terms

    def find(self, word: str) -> tuple[Rows, Numbers] | None:
        """Return the rows that contain a word and its impact on each, or None if no row does."""
        span = self.spans.get(word)
        return None if span is None else (self.rows[slice(*span)], self.impacts[slice(*span)])
