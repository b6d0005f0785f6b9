"""The documents of an index, in immutable segments, and the best of them for a query.

An index is updated often and by little: one server of a hundred changes a tool. So there is a large segment, and a small one
with what has changed since; rows of the large one that changed or are gone are only marked dead. When too much is loose, both
are merged into one, without reading a document again. For example, after one of 1,000 tools has changed its description, row 17
of the large segment is dead, and the small one has one row; both are searched as if they were 1,000 rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from toolpost.base.method_caches import cache_method
from toolpost.discovery.search.document import ToolDocument, find_action, summarize
from toolpost.discovery.search.meaning import Vectors, vectors_of
from toolpost.discovery.search.scoring import (
    Actions,
    Corpus,
    Evidence,
    Lexicon,
    Mask,
    Numbers,
    Postings,
    Rows,
    Shortlist,
    impacts_of,
    score_documents,
)
from toolpost.discovery.search.weights import WEIGHTS, Weights
from toolpost.discovery.search.words import ParsedQuery

_CACHED_CORPORA = 32
"""For how many different sets of visible tools the derived arrays are cached."""
_LOOSE_ROWS = 64
_LOOSE_SHARE = 8
"""All segments are merged once more than 64 rows, and more than one row in 8, are new or dead."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Some documents by row, with their postings and vectors; immutable."""

    documents: Sequence[ToolDocument]
    postings: Postings
    vectors: Vectors
    actions: Actions

    @classmethod
    def of(cls, documents: Sequence[ToolDocument], weights: Weights) -> "Segment":
        postings = Postings.of(impacts_of(document, weights) for document in documents)
        actions = np.array([find_action(document) for document in documents], np.int8)
        return cls(documents, postings, vectors_of(map(summarize, documents)), actions)

    @classmethod
    def merge(cls, segments: Sequence["Segment"], alive: Sequence[NDArray[np.bool_]]) -> "Segment":
        """Copy the live rows of several segments into one, renumbered."""
        documents = [
            document
            for segment, mask in zip(segments, alive, strict=True)
            for document, is_alive in zip(segment.documents, mask.tolist(), strict=True)
            if is_alive
        ]
        vectors = np.concatenate([segment.vectors[mask] for segment, mask in zip(segments, alive, strict=True)])
        actions = np.concatenate([segment.actions[mask] for segment, mask in zip(segments, alive, strict=True)])
        term_ids: dict[str, int] = {}
        terms: list[Rows] = []
        rows: list[Rows] = []
        impacts: list[Numbers] = []
        start = 0
        for segment, mask in zip(segments, alive, strict=True):
            postings = segment.postings
            new_rows = np.cumsum(mask, dtype=np.int32) - 1 + start
            # Postings of dead rows are dropped here, and nowhere else: until then the mask hides them.
            is_alive = mask[postings.rows]
            terms.append(postings.number_terms(term_ids)[is_alive])
            rows.append(new_rows[postings.rows[is_alive]].astype(np.int32))
            impacts.append(postings.impacts[is_alive])
            start += int(np.count_nonzero(mask))
        postings = Postings.sort(list(term_ids), np.concatenate(terms), np.concatenate(rows), np.concatenate(impacts))
        return cls(documents, postings, vectors, actions)


class Engine:
    """At most two segments and a mask of the rows that are alive; immutable."""

    def __init__(self, segments: Sequence[Segment], alive: Mask, weights: Weights) -> None:
        self.documents: Sequence[ToolDocument] = [document for segment in segments for document in segment.documents]
        is_alive = alive.tolist()
        self.rows: Mapping[str, int] = {d.name: row for row, d in enumerate(self.documents) if is_alive[row]}
        self._segments = segments
        self._starts = [0, *accumulate(len(segment.documents) for segment in segments)]
        self._alive = alive
        self._weights = weights
        # Numbers, because the score groups thousands of rows by their server at once; -1 is no server.
        servers = {"": -1}
        self._servers = np.array([servers.setdefault(d.server, len(servers) - 1) for d in self.documents], np.int32)
        self._actions = np.concatenate([segment.actions for segment in segments])
        self._everything = self._make_corpus(alive)
        self._corpus_of = cache_method(self._make_corpus_of, _CACHED_CORPORA)

    @classmethod
    def of(cls, documents: Iterable[ToolDocument], weights: Weights = WEIGHTS) -> "Engine":
        """Index all documents; of two with one name the later counts."""
        unique = list({document.name: document for document in documents}.values())
        return cls([Segment.of(unique, weights)], np.ones(len(unique), np.bool_), weights)

    def update(self, documents: Iterable[ToolDocument]) -> "Engine":
        """Return an engine of exactly these documents, indexing only new and changed ones; itself if there are none."""
        alive = np.zeros(len(self.documents), np.bool_)
        fresh: list[ToolDocument] = []
        for name, document in {document.name: document for document in documents}.items():
            row = self.rows.get(name)
            if row is not None and is_same(self.documents[row], document):
                alive[row] = True
            else:
                fresh.append(document)
        if not fresh and np.array_equal(alive, self._alive):
            # The same object, so that what is cached for each set of visible tools stays.
            return self
        segments = [*self._segments, Segment.of(fresh, self._weights)]
        return Engine(*_compact(segments, np.concatenate((alive, np.ones(len(fresh), np.bool_)))), self._weights)

    def find_best(
        self, query: ParsedQuery, among: frozenset[str] | None, limit: int
    ) -> tuple[list[tuple[ToolDocument, float]], Evidence]:
        """Return the best visible documents with their scores, best first, and the evidence for the first."""
        scores = score_documents(
            query, self._everything if among is None else self._corpus_of(among), self._weights, limit
        )
        # Rounded: the last bits of a sum depend on the order of its terms, which differs between two indexes of the same tools.
        rows, totals = scores.rows, np.round(scores.totals.astype(np.float64), 6)
        # Cut before sorting, and at a score: names decide between equal ones, and are not known to numpy.
        if 0 < limit < len(rows):
            is_kept = totals >= np.partition(totals, len(totals) - limit)[len(totals) - limit]
            rows, totals = rows[is_kept], totals[is_kept]
        # Equal scores are ordered by name, so that the same query always has the same answer.
        ranked = [
            (-total, self.documents[row].name, row) for row, total in zip(rows.tolist(), totals.tolist(), strict=True)
        ]
        ranked.sort()
        evidence = scores.find_evidence(ranked[0][2]) if ranked else Evidence()
        return [(self.documents[row], -total) for total, _, row in ranked[: max(0, limit)]], evidence

    def _make_corpus_of(self, among: frozenset[str]) -> Corpus:
        visible = np.zeros(len(self.documents), np.bool_)
        visible[[row for name in among if (row := self.rows.get(name)) is not None]] = True
        return self._make_corpus(visible)

    def _make_corpus(self, visible: Mask) -> Corpus:
        parts = [(start, segment.postings) for start, segment in zip(self._starts, self._segments, strict=False)]
        return Corpus(
            lexicon=Lexicon(parts, visible, int(np.count_nonzero(visible))),
            servers=self._servers,
            actions=self._actions,
            vectors=[segment.vectors for segment in self._segments],
            vectors_at=self._vectors_at,
        )

    def _vectors_at(self, rows: Shortlist) -> Vectors:
        parts = []
        for start, segment in zip(self._starts, self._segments, strict=False):
            inside = rows[(rows >= start) & (rows < start + len(segment.documents))]
            parts.append(segment.vectors[inside - start])
        return np.concatenate(parts)


def is_same(old: ToolDocument, new: ToolDocument) -> bool:
    """Whether `new` needs no indexing because `old` was indexed."""
    if old is new:
        return True
    if old.digest and old.digest == new.digest:
        # The digest covers the tool's definition; what its server says is not part of that.
        return old.server == new.server and old.server_description == new.server_description
    return old == new


def _compact(segments: Sequence[Segment], alive: Mask) -> tuple[Sequence[Segment], Mask]:
    """Merge all small segments into one, or everything into one if too many rows are loose."""
    sizes = [len(segment.documents) for segment in segments]
    parts = np.split(alive, np.cumsum(sizes)[:-1])
    loose = len(alive) - int(np.count_nonzero(parts[0]))
    if loose > max(_LOOSE_ROWS, sizes[0] // _LOOSE_SHARE):
        whole = Segment.merge(segments, parts)
        return [whole], np.ones(len(whole.documents), np.bool_)
    small = Segment.merge(segments[1:], parts[1:])
    return [segments[0], small], np.concatenate((parts[0], np.ones(len(small.documents), np.bool_)))
