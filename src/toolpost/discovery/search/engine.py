"""The search itself, on arrays: which documents there are, and which fit a request best."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np

from toolpost.discovery.search.clauses import Request
from toolpost.discovery.search.document import Document
from toolpost.discovery.search.lexical import Lexicon, Mask
from toolpost.discovery.search.meaning import Vectors
from toolpost.discovery.search.scoring import Corpus, Evidence, Shortlist, scores_of
from toolpost.discovery.search.segment import Segment
from toolpost.discovery.search.weights import WEIGHTS, Weights

_VIEWS = 32
"""For how many different sets of visible tools what follows from them is kept."""
_LOOSE_ROWS = 64
_LOOSE_SHARE = 8
"""Rows that are new or gone since the large segment was made may be one in so many before all is made one again."""


class Engine:
    """Documents in segments: a large one, and a small one with what has changed since. Never changed once made."""

    def __init__(self, segments: Sequence[Segment], alive: Mask, weights: Weights) -> None:
        self.documents: Sequence[Document] = [document for segment in segments for document in segment.documents]
        kept = alive.tolist()
        self.rows: Mapping[str, int] = {d.name: row for row, d in enumerate(self.documents) if kept[row]}
        self._segments = segments
        self._starts = [0, *accumulate(len(segment.documents) for segment in segments)]
        self._alive = alive
        self._weights = weights
        servers = {"": -1}
        self._servers = np.array([servers.setdefault(d.server, len(servers) - 1) for d in self.documents], np.int32)
        self._everything = self._seeing(alive)
        self._seen = lru_cache(maxsize=_VIEWS)(self._seeing_only)

    @classmethod
    def of(cls, documents: Iterable[Document], weights: Weights = WEIGHTS) -> "Engine":
        """Read all documents; of two with one name the later counts."""
        known = list({document.name: document for document in documents}.values())
        return cls([Segment.of(known, weights)], np.ones(len(known), np.bool_), weights)

    def updated(self, documents: Iterable[Document]) -> "Engine":
        """Read what is new or has changed, and take over the rest."""
        alive = np.zeros(len(self.documents), np.bool_)
        fresh: list[Document] = []
        for name, document in {document.name: document for document in documents}.items():
            row = self.rows.get(name)
            if row is not None and is_same(self.documents[row], document):
                alive[row] = True
            else:
                fresh.append(document)
        if not fresh and np.array_equal(alive, self._alive):
            return self
        segments = [*self._segments, Segment.of(fresh, self._weights)]
        return Engine(*_tidied(segments, np.concatenate((alive, np.ones(len(fresh), np.bool_)))), self._weights)

    def best(
        self, request: Request, among: frozenset[str] | None, limit: int
    ) -> tuple[list[tuple[Document, float]], Evidence]:
        """Return the best documents that are seen, best first, with their scores; and what speaks for the first."""
        scores = scores_of(request, self._everything if among is None else self._seen(among), self._weights, limit)
        rows, totals = scores.rows, np.round(scores.totals.astype(np.float64), 6)
        if 0 < limit < len(rows):
            is_kept = totals >= np.partition(totals, len(totals) - limit)[len(totals) - limit]
            rows, totals = rows[is_kept], totals[is_kept]
        # Among equals the names decide, so that one question has one answer.
        found = [
            (-total, self.documents[row].name, row) for row, total in zip(rows.tolist(), totals.tolist(), strict=True)
        ]
        found.sort()
        return [(self.documents[row], -total) for total, _, row in found[: max(0, limit)]], scores.evidence

    def _seeing_only(self, among: frozenset[str]) -> Corpus:
        seen = np.zeros(len(self.documents), np.bool_)
        seen[[row for name in among if (row := self.rows.get(name)) is not None]] = True
        return self._seeing(seen)

    def _seeing(self, seen: Mask) -> Corpus:
        parts = [(start, segment.postings) for start, segment in zip(self._starts, self._segments, strict=False)]
        return Corpus(
            lexicon=Lexicon(parts, seen, int(np.count_nonzero(seen))),
            servers=self._servers,
            vectors=[segment.vectors for segment in self._segments],
            vectors_at=self._vectors_at,
        )

    def _vectors_at(self, rows: Shortlist) -> Vectors:
        parts = []
        for start, segment in zip(self._starts, self._segments, strict=False):
            inside = rows[(rows >= start) & (rows < start + len(segment.documents))]
            parts.append(segment.vectors[inside - start])
        return np.concatenate(parts)


def is_same(old: Document, new: Document) -> bool:
    """Whether work done on one document holds for the other."""
    if old is new:
        return True
    if old.digest and old.digest == new.digest:
        return old.server == new.server and old.server_description == new.server_description
    return old == new


def _tidied(segments: Sequence[Segment], alive: Mask) -> tuple[Sequence[Segment], Mask]:
    """Keep two segments at most: the small ones are made one, and all are when too much is loose."""
    sizes = [len(segment.documents) for segment in segments]
    parts = np.split(alive, np.cumsum(sizes)[:-1])
    loose = len(alive) - int(np.count_nonzero(parts[0]))
    if loose > max(_LOOSE_ROWS, sizes[0] // _LOOSE_SHARE):
        whole = Segment.merged(segments, parts)
        return [whole], np.ones(len(whole.documents), np.bool_)
    small = Segment.merged(segments[1:], parts[1:])
    return [segments[0], small], np.concatenate((parts[0], np.ones(len(small.documents), np.bool_)))
