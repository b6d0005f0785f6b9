"""Some documents, prepared for searching: their postings and their vectors, never changed once made."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolpost.discovery.search.document import Document
from toolpost.discovery.search.fields import described
from toolpost.discovery.search.meaning import Vectors, vectors_of
from toolpost.discovery.search.postings import Numbers, Postings, Rows, impacts_of
from toolpost.discovery.search.weights import Weights


@dataclass(frozen=True, slots=True)
class Segment:
    """Documents by row."""

    documents: Sequence[Document]
    postings: Postings
    vectors: Vectors

    @classmethod
    def of(cls, documents: Sequence[Document], weights: Weights) -> "Segment":
        """Read documents that nobody has read before."""
        postings = Postings.of(impacts_of(document, weights) for document in documents)
        return cls(documents, postings, vectors_of(map(described, documents)))

    @classmethod
    def merged(cls, segments: Sequence["Segment"], alive: Sequence[NDArray[np.bool_]]) -> "Segment":
        """Make one of several, without reading a document again; rows that are no longer alive are left out."""
        documents = [
            document
            for segment, kept in zip(segments, alive, strict=True)
            for document, is_kept in zip(segment.documents, kept.tolist(), strict=True)
            if is_kept
        ]
        vectors = np.concatenate([segment.vectors[kept] for segment, kept in zip(segments, alive, strict=True)])
        numbers: dict[str, int] = {}
        terms: list[Rows] = []
        rows: list[Rows] = []
        impacts: list[Numbers] = []
        start = 0
        for segment, kept in zip(segments, alive, strict=True):
            postings = segment.postings
            moved = np.cumsum(kept, dtype=np.int32) - 1 + start
            is_kept = kept[postings.rows]
            terms.append(postings.terms(numbers)[is_kept])
            rows.append(moved[postings.rows[is_kept]].astype(np.int32))
            impacts.append(postings.impacts[is_kept])
            start += int(np.count_nonzero(kept))
        postings = Postings.sorted(list(numbers), np.concatenate(terms), np.concatenate(rows), np.concatenate(impacts))
        return cls(documents, postings, vectors)
