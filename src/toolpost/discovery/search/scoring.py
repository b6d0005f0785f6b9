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

_TINY = 1e-9

Shortlist = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """All documents by row, and which of them are seen."""

    lexicon: Lexicon
    servers: NDArray[np.int32]
    """The number of each row's server; -1 for a tool without one."""
    server_count: int
    vectors: Sequence[Vectors]
    vectors_at: Callable[[Shortlist], Vectors]

    @property
    def seen(self) -> Mask:
        """Which rows may have a part in the answer."""
        return self.lexicon.seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The score of each row, and what speaks for the best of them."""

    totals: Numbers
    evidence: "Evidence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What speaks for a best match, apart from being better than the others."""

    cosine: float
    """How near it comes in meaning."""
    coverage: float
    """Which share of the request's words it has, the rare ones counting more."""


def scores_of(request: Request, corpus: Corpus, weights: Weights) -> Scores:
    """Score every document; one that is not seen gets nothing, and has no part in what the others get."""
    spoken = corpus.lexicon.spoken(request.words, weights.synonym)
    wanted = vectors_of(request.texts)
    lexical = corpus.lexicon.sums(request.words, spoken)
    cosines = np.concatenate([cosines_of(vectors, wanted[0]) for vectors in corpus.vectors])
    cosines[~corpus.seen] = 0
    totals = _mixed(lexical, cosines, weights)
    if len(request.texts) > 1:
        totals = _with_clauses(totals, request, spoken, wanted[1:], corpus, weights)
    totals = _with_servers(totals, corpus, weights)
    return Scores(totals=totals, evidence=_evidence(totals, cosines, spoken))


def _mixed(lexical: Numbers, cosines: Numbers, weights: Weights) -> Numbers:
    mixed = (1 - weights.meaning) * _of_best(lexical) + weights.meaning * _of_best(np.maximum(cosines, 0))
    return mixed.astype(np.float32)


def _of_best(numbers: Numbers) -> Numbers:
    return numbers / np.float32(max(float(numbers.max(initial=0)), _TINY))


def _with_clauses(
    totals: Numbers,
    request: Request,
    spoken: dict[str, Spoken],
    wanted: Vectors,
    corpus: Corpus,
    weights: Weights,
) -> Numbers:
    """Let the best clause speak as loud as the whole, among those that the whole finds at all."""
    rows = _shortlist(totals, weights.shortlist)
    vectors = corpus.vectors_at(rows)
    best = np.zeros(len(rows), np.float32)
    for words, vector in zip(request.words_by_text[1:], wanted, strict=True):
        lexical = corpus.lexicon.sums(words, spoken)[rows]
        np.maximum(best, _mixed(lexical, cosines_of(vectors, vector), weights), out=best)
    found = totals * np.float32(1 - weights.clause)
    found[rows] += np.float32(weights.clause) * best
    found[~corpus.seen] = 0
    return found


def _shortlist(totals: Numbers, size: int) -> Shortlist:
    if len(totals) <= size:
        return np.flatnonzero(totals > 0)
    best = np.argpartition(totals, len(totals) - size)[-size:]
    return np.sort(best[totals[best] > 0])


def _with_servers(totals: Numbers, corpus: Corpus, weights: Weights) -> Numbers:
    """Draw each tool a little towards the best of its server: a server that has one thing has the things beside it."""
    has_server = (corpus.servers >= 0) & (totals > 0)
    servers = corpus.servers[has_server]
    best = np.zeros(corpus.server_count, np.float32)
    np.maximum.at(best, servers, totals[has_server])
    totals[has_server] += np.float32(weights.server_prior) * (best[servers] - totals[has_server])
    return totals


def _evidence(totals: Numbers, cosines: Numbers, spoken: dict[str, Spoken]) -> Evidence:
    if not len(totals):
        return Evidence(cosine=0.0, coverage=0.0)
    best = int(totals.argmax())
    had = sum(word.rarity for word in spoken.values() if _has(word.own_rows, best))
    asked = sum(word.rarity for word in spoken.values())
    return Evidence(cosine=float(cosines[best]), coverage=had / max(asked, _TINY))


def _has(rows: Rows, row: int) -> bool:
    place = int(rows.searchsorted(row))
    return place < len(rows) and int(rows[place]) == row
