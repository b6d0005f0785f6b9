"""The search itself, on arrays: which documents there are, and which fit a query best."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from toolpost.discovery.search.clauses import Request
from toolpost.discovery.search.document import Document
from toolpost.discovery.search.meaning import cosines_of, vectors_of
from toolpost.discovery.search.scoring import Candidates, Scores, scores_of
from toolpost.discovery.search.segment import Segment
from toolpost.discovery.search.weights import WEIGHTS, Weights

Mask = NDArray[np.bool_]

_VIEWS = 32
"""For how many different sets of visible tools the mask is kept."""
_LOOSE_ROWS = 64
_LOOSE_SHARE = 8
"""Rows outside the first segment, and rows no longer alive, may be one in this many before all segments are made one."""

_NOTHING = 1e-6


class Engine:
    """Documents in segments: one large, and one small with what has changed since."""

    def __init__(self, segments: Sequence[Segment], alive: Mask, weights: Weights) -> None:
        self._segments = segments
        self._alive = alive
        self._weights = weights
        self.documents: Sequence[Document] = [document for segment in segments for document in segment.documents]
        kept = alive.tolist()
        self.rows: Mapping[str, int] = {d.name: row for row, d in enumerate(self.documents) if kept[row]}
        servers: dict[str, int] = {}
        self._servers = np.array([servers.setdefault(d.server, len(servers)) for d in self.documents], np.int32)
        self._seen = lru_cache(maxsize=_VIEWS)(self._mask)

    @classmethod
    def prepare(cls, documents: Iterable[Document], previous: "Engine | None", weights: Weights = WEIGHTS) -> "Engine":
        """Read the documents that the previous engine has not read, and take over the others."""
        wanted = {document.name: document for document in documents}
        if previous is None or previous._weights is not weights:
            return cls([Segment.of(list(wanted.values()), weights)], np.ones(len(wanted), np.bool_), weights)
        return previous._updated(wanted)

    def _updated(self, wanted: Mapping[str, Document]) -> "Engine":
        alive = np.zeros(len(self.documents), np.bool_)
        fresh: list[Document] = []
        for name, document in wanted.items():
            row = self.rows.get(name)
            if row is not None and is_same(self.documents[row], document):
                alive[row] = True
            else:
                fresh.append(document)
        if not fresh and alive.sum() == self._alive.sum():
            return self
        segments = [*self._segments, Segment.of(fresh, self._weights)]
        return Engine(*_tidied(segments, np.concatenate((alive, np.ones(len(fresh), np.bool_)))), self._weights)

    def scores(self, request: Request, among: frozenset[str] | None) -> Scores:
        """Score all documents that are seen."""
        seen = self._alive if among is None else self._seen(among)
        vectors = vectors_of(request.texts)
        cosines = np.concatenate([cosines_of(segment.vectors, vectors) for segment in self._segments], axis=1)
        candidates = Candidates(
            postings=[segment.postings for segment in self._segments],
            sizes=[len(segment.documents) for segment in self._segments],
            seen=seen,
            servers=self._servers,
            cosines=cosines,
        )
        return scores_of(request, candidates, self._weights)

    def best(self, scores: Scores, limit: int) -> list[tuple[int, float]]:
        """Return the best rows, best first; among equals the names decide, so that the same question has one answer."""
        totals = scores.totals
        wanted = min(limit, len(totals))
        if wanted <= 0:
            return []
        least = max(float(np.partition(totals, len(totals) - wanted)[len(totals) - wanted]), _NOTHING)
        found = [(row, round(float(totals[row]), 6)) for row in np.flatnonzero(totals >= least).tolist()]
        found.sort(key=lambda item: (-item[1], self.documents[item[0]].name))
        return found[:wanted]

    def _mask(self, among: frozenset[str]) -> Mask:
        seen = np.zeros(len(self.documents), np.bool_)
        seen[[row for name in among if (row := self.rows.get(name)) is not None]] = True
        return seen


def is_same(old: Document, new: Document) -> bool:
    """Whether work done on one document holds for the other."""
    if old is new:
        return True
    if old.digest and old.digest == new.digest:
        return old.server == new.server and old.server_description == new.server_description
    return old == new


def _tidied(segments: Sequence[Segment], alive: Mask) -> tuple[Sequence[Segment], Mask]:
    """Keep two segments at most: small ones are made one, and all are when too much is loose."""
    sizes = [len(segment.documents) for segment in segments]
    parts = np.split(alive, np.cumsum(sizes)[:-1])
    loose = len(alive) - int(np.count_nonzero(parts[0]))
    if loose > max(_LOOSE_ROWS, sizes[0] // _LOOSE_SHARE):
        whole = Segment.merged(segments, parts)
        return [whole], np.ones(len(whole.documents), np.bool_)
    small = Segment.merged(segments[1:], parts[1:])
    return [segments[0], small], np.concatenate((parts[0], np.ones(len(small.documents), np.bool_)))
