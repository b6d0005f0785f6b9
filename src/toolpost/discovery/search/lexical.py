"""The words of a request among the documents that are seen: how rare each is there, and for which it speaks."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from toolpost.discovery.search.postings import Numbers, Postings, Rows
from toolpost.discovery.search.synonyms import SYNONYMS

Mask = NDArray[np.bool_]
_T = TypeVar("_T", bound=np.generic)

MOST_WORDS = 512
"""How many different words of a request are looked for, the rarest first."""


@dataclass(frozen=True, slots=True)
class Found:
    """A word among the documents that are seen: its rarity, the rows that have it, its impact on each."""

    rarity: float
    rows: Rows
    impacts: Numbers


@dataclass(frozen=True, slots=True)
class Spoken:
    """A word of a request: the rows that it speaks for, itself or through a synonym, and how much."""

    rarity: float
    own_rows: Rows
    rows: Rows
    amounts: Numbers


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The postings of all segments, as far as they are seen."""

    parts: Sequence[tuple[int, Postings]]
    """Each with the number of its first row."""
    seen: Mask
    count: int
    """How many documents are seen."""

    def spoken(self, words: Iterable[str], synonym: float) -> dict[str, Spoken]:
        """Look all words of a request up; each counts by how rare it is among what is seen."""
        known = {word: self._spoken(word, synonym) for word in words}
        if len(known) <= MOST_WORDS:
            return known
        return dict(sorted(known.items(), key=lambda item: (-item[1].rarity, item[0]))[:MOST_WORDS])

    def _spoken(self, word: str, synonym: float) -> Spoken:
        own = self._found(word)
        rows, amounts = [own.rows], [own.impacts * own.rarity]
        for other in SYNONYMS.get(word, ()):
            found = self._found(other)
            if len(found.rows):
                # The commoner of both decides: a rare word must not make a common synonym of it weigh like a rare one.
                rows.append(found.rows)
                amounts.append(found.impacts * (synonym * min(own.rarity, found.rarity)))
        return Spoken(own.rarity, own.rows, _joined(rows), _joined(amounts))

    def _found(self, word: str) -> Found:
        rows: list[Rows] = []
        impacts: list[Numbers] = []
        for start, postings in self.parts:
            if (found := postings.find(word)) is not None:
                rows.append(found[0] + start if start else found[0])
                impacts.append(found[1])
        if not rows:
            return Found(self._rarity(0), _NO_ROWS, _NO_NUMBERS)
        all_rows, all_impacts = _joined(rows), _joined(impacts)
        if self.count < len(self.seen):
            is_seen = self.seen[all_rows]
            all_rows, all_impacts = all_rows[is_seen], all_impacts[is_seen]
        return Found(self._rarity(len(all_rows)), all_rows, all_impacts)

    def _rarity(self, having: int) -> float:
        return math.log1p((self.count - having + 0.5) / (having + 0.5))

    def sums(self, words: Iterable[str], spoken: Mapping[str, Spoken]) -> Numbers:
        """Add up for each row what these words say for it."""
        known = [spoken[word] for word in words if word in spoken]
        if not known:
            return np.zeros(len(self.seen), np.float32)
        rows = _joined([word.rows for word in known])
        amounts = _joined([word.amounts for word in known])
        return np.bincount(rows, amounts, len(self.seen)).astype(np.float32)


_NO_ROWS: Rows = np.zeros(0, np.int32)
_NO_NUMBERS: Numbers = np.zeros(0, np.float32)


def _joined(arrays: Sequence[NDArray[_T]]) -> NDArray[_T]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
