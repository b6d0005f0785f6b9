"""Which document has which word, and how much it counts there: BM25F, but for what depends on the other documents."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolpost.discovery.search.document import Document
from toolpost.discovery.search.fields import fields_of
from toolpost.discovery.search.weights import Weights
from toolpost.discovery.search.words import words_of

Rows = NDArray[np.int32]
Numbers = NDArray[np.float32]


def impacts_of(document: Document, weights: Weights) -> dict[str, float]:
    """Say for each word how much it counts in this document, between 0 and 1; the other documents do not matter."""
    sums: dict[str, float] = {}
    for field, text in fields_of(document).items():
        if not text:
            continue
        weight = weights.fields[field]
        counts = Counter(words_of(text))
        length = counts.total() / weight.usual_words
        each = weight.boost / (1 - weight.flatness + weight.flatness * length)
        for word, count in counts.items():
            sums[word] = sums.get(word, 0.0) + count * each
    return {word: amount / (amount + weights.saturation) for word, amount in sums.items()}


@dataclass(frozen=True, slots=True)
class Postings:
    """For each word the rows that have it, and its impact there."""

    spans: Mapping[str, tuple[int, int]]
    rows: Rows
    impacts: Numbers

    @classmethod
    def of(cls, documents: Iterable[Mapping[str, float]]) -> "Postings":
        """Sort the words of all documents."""
        numbers: dict[str, int] = {}
        terms: list[int] = []
        rows: list[int] = []
        impacts: list[float] = []
        for row, words in enumerate(documents):
            terms += [numbers.setdefault(word, len(numbers)) for word in words]
            rows += [row] * len(words)
            impacts += words.values()
        return cls.sorted(
            list(numbers), np.array(terms, np.int32), np.array(rows, np.int32), np.array(impacts, np.float32)
        )

    @classmethod
    def sorted(cls, words: Sequence[str], terms: Rows, rows: Rows, impacts: Numbers) -> "Postings":
        """Bring postings into the order of their words."""
        order = np.argsort(terms, kind="stable")
        ends = np.cumsum(np.bincount(terms, minlength=len(words))).tolist()
        spans = {word: (start, end) for word, start, end in zip(words, [0, *ends], ends, strict=False)}
        return cls(spans, rows[order], impacts[order])

    def terms(self, numbers: dict[str, int]) -> Rows:
        """Number the word of each posting; words without a number are given the next."""
        found = np.empty(len(self.rows), np.int32)
        for word, (start, end) in self.spans.items():
            found[start:end] = numbers.setdefault(word, len(numbers))
        return found

    def find(self, word: str) -> tuple[Rows, Numbers] | None:
        """Return the rows that have a word, and its impact on each."""
        span = self.spans.get(word)
        return None if span is None else (self.rows[slice(*span)], self.impacts[slice(*span)])
