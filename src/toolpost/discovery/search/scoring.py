"""How well each document fits a request: words and meaning, half and half."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolpost.discovery.search.clauses import Request
from toolpost.discovery.search.meaning import Vectors
from toolpost.discovery.search.postings import Numbers, Postings
from toolpost.discovery.search.weights import Weights

_MOST_WORDS = 64
_TINY = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """All documents of an engine by row, and which of them may be seen."""

    postings: Sequence[Postings]
    sizes: Sequence[int]
    seen: NDArray[np.bool_]
    servers: NDArray[np.int32]
    cosines: Vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The score of each row, and what speaks for the best of them."""

    totals: Numbers
    coverage: float
    """Which share of the request's words, rare ones counting more, the best document has."""
    cosine: float
    """How near the best document comes in meaning."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the request: how rare it is, and how much it speaks for each document that has it."""

    rarity: float
    rows: NDArray[np.int32]
    amounts: Numbers


def scores_of(request: Request, candidates: Candidates, weights: Weights) -> Scores:
    """Score every document; one that may not be seen gets nothing, and has no part in what the others get."""
    words = _words(request, candidates, weights)
    lexical = _lexical(request, words, candidates, weights)
    cosines = np.where(candidates.seen, candidates.cosines, 0)
    meaning = _meaning(cosines, candidates.seen, weights)
    totals = (1 - weights.meaning) * lexical + weights.meaning * meaning
    totals = np.where(candidates.seen & (totals > 0), totals, 0).astype(np.float32)
    totals = _with_servers(totals, candidates.servers, weights)
    best = int(totals.argmax()) if len(totals) else 0
    return Scores(totals=totals, coverage=0.0, cosine=float(cosines[0, best]) if len(totals) else 0.0)


def _words(request: Request, candidates: Candidates, weights: Weights) -> dict[str, Word]:
    count = int(np.count_nonzero(candidates.seen))
    found = {}
    for word in request.words:
        own = _found(word, candidates)
        if own is None:
            continue
        rarity = float(np.log1p((count - len(own[0]) + 0.5) / (len(own[0]) + 0.5)))
        found[word] = Word(rarity, own[0], own[1] * rarity)
    return found


def _found(word: str, candidates: Candidates) -> tuple[NDArray[np.int32], Numbers] | None:
    parts = []
    start = 0
    for postings, size in zip(candidates.postings, candidates.sizes, strict=True):
        if (own := postings.find(word)) is not None:
            parts.append((own[0] + start, own[1]))
        start += size
    if not parts:
        return None
    rows, impacts = (
        parts[0] if len(parts) == 1 else (np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))
    )
    seen = candidates.seen[rows]
    return (rows, impacts) if seen.all() else (rows[seen], impacts[seen])


def _lexical(request: Request, words: Mapping[str, Word], candidates: Candidates, weights: Weights) -> Numbers:
    total = np.zeros(len(candidates.seen), np.float32)
    for word in words.values():
        total[word.rows] += word.amounts
    return total / max(float(total.max(initial=0)), _TINY)


def _meaning(cosines: Vectors, seen: NDArray[np.bool_], weights: Weights) -> Numbers:
    whole = np.clip(cosines[0], 0, None)
    return whole / max(float(whole.max(initial=0)), _TINY)


def _with_servers(totals: Numbers, servers: NDArray[np.int32], weights: Weights) -> Numbers:
    return totals
