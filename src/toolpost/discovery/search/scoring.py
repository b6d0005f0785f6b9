"""How well each document fits a request: words and meaning half and half, the whole request and its best clause."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolpost.discovery.search.clauses import Request
from toolpost.discovery.search.lexical import Lexicon, Mask, Spoken
from toolpost.discovery.search.meaning import Vectors, cosines_of, vectors_of
from toolpost.discovery.search.postings import Numbers, Rows
from toolpost.discovery.search.weights import Weights

_TINY = np.float32(1e-9)

Shortlist = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """All documents by row, and which of them are seen."""

    lexicon: Lexicon
    servers: NDArray[np.int32]
    """The number of each row's server; -1 for a tool without one."""
    vectors: Sequence[Vectors]
    vectors_at: Callable[[Shortlist], Vectors]

    @property
    def seen(self) -> Mask:
        """Which rows may have a part in the answer."""
        return self.lexicon.seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What speaks for a best match, apart from being better than the others."""

    cosine: float = 0.0
    """How near it comes in meaning."""
    coverage: float = 0.0
    """Which share of the request's words it has, the rare ones counting more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The rows that fit best, in no order, with the score of each, and what speaks for the best of them."""

    rows: Shortlist
    totals: Numbers
    evidence: Evidence


def scores_of(request: Request, corpus: Corpus, weights: Weights, wanted: int) -> Scores:
    """Score the documents that fit best; one that is not seen has no part in it.

    All are compared with the whole request; only a shortlist of them with its clauses and with each other.
    """
    spoken = corpus.lexicon.spoken(request.words, weights.synonym)
    vectors = vectors_of(request.texts)
    lexical = corpus.lexicon.sums(request.words, spoken)
    cosines = np.concatenate([cosines_of(some, vectors[0]) for some in corpus.vectors])
    if corpus.lexicon.count < len(corpus.seen):
        cosines[~corpus.seen] = 0
    totals = _mixed(lexical, cosines, weights)
    rows = _shortlist(totals, max(wanted, weights.shortlist))
    best = totals[rows]
    if len(request.texts) > 1:
        by_clause = _by_clause(rows, request, spoken, vectors[1:], corpus, weights)
        best = np.float32(1 - weights.clause) * best + np.float32(weights.clause) * by_clause
    best = _with_servers(best, corpus.servers[rows], weights)
    return Scores(rows=rows, totals=best, evidence=_evidence(rows, best, cosines, spoken))


def _mixed(lexical: Numbers, cosines: Numbers, weights: Weights) -> Numbers:
    words = np.float32(1 - weights.meaning) / max(lexical.max(initial=0), _TINY)
    meaning = np.float32(weights.meaning) / max(cosines.max(initial=0), _TINY)
    mixed: Numbers = words * lexical + meaning * np.maximum(cosines, 0)
    return mixed


def _shortlist(totals: Numbers, size: int) -> Shortlist:
    """Return the best rows in their order; of equals all or none, for the order of the rows is no reason."""
    if len(totals) <= size:
        return np.flatnonzero(totals > 0)
    least = np.partition(totals, len(totals) - size)[len(totals) - size]
    return np.flatnonzero(totals >= least) if least > 0 else np.flatnonzero(totals > 0)


def _by_clause(
    rows: Shortlist,
    request: Request,
    spoken: dict[str, Spoken],
    wanted: Vectors,
    corpus: Corpus,
    weights: Weights,
) -> Numbers:
    """Score by the clause that a document fits best."""
    vectors = corpus.vectors_at(rows)
    best = np.zeros(len(rows), np.float32)
    for words, vector in zip(request.words_by_text[1:], wanted, strict=True):
        lexical = corpus.lexicon.sums(words, spoken)[rows]
        np.maximum(best, _mixed(lexical, cosines_of(vectors, vector), weights), out=best)
    return best


def _with_servers(totals: Numbers, servers: NDArray[np.int32], weights: Weights) -> Numbers:
    """Draw each tool a little towards the best of its server: a server that has one thing has the things beside it."""
    found, numbers = np.unique(servers, return_inverse=True)
    best = np.zeros(len(found), np.float32)
    np.maximum.at(best, numbers, totals)
    lift = np.where(servers >= 0, best[numbers] - totals, 0)
    return (totals + np.float32(weights.server_prior) * lift).astype(np.float32)


def _evidence(rows: Shortlist, totals: Numbers, cosines: Numbers, spoken: dict[str, Spoken]) -> Evidence:
    if not len(rows):
        return Evidence()
    best = int(rows[totals.argmax()])
    had = sum(word.rarity for word in spoken.values() if _has(word.own_rows, best))
    asked = sum(word.rarity for word in spoken.values())
    return Evidence(cosine=float(cosines[best]), coverage=had / max(asked, float(_TINY)))


def _has(rows: Rows, row: int) -> bool:
    place = int(rows.searchsorted(row))
    return place < len(rows) and int(rows[place]) == row
