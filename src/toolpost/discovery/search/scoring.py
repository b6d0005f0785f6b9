"""The score of each document for a query: words and meaning, of the whole query and of its best-fitting clause.

    score = 0.5 * BM25F(words) / best + 0.5 * cosine(vectors) / best

averaged with the same score for the clause that fits the document best, less a share where the query asks to list and the tool
deletes, plus a small pull toward the best tool of the same server. Everything is computed among the visible documents only: how
rare a word is, the best of both halves, the servers. So a caller cannot learn from a score that a hidden tool exists.

BM25F is therefore split in two. What depends on one document alone ("impact": term frequency, field boosts, length) is computed
once, into an inverted index (`Postings`). How rare a word is depends on which documents the caller may see, and is computed for
each query (`Lexicon`). For example, `issue` in the name of a tool has an impact of about 0.6 there; among 1,000 visible tools of
which 10 have the word its rarity is log(1 + 990.5 / 10.5) = 4.6, among 10 visible tools that all have it 0.05.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from toolpost.discovery.search.document import ToolDocument, fields_of
from toolpost.discovery.search.meaning import Vectors, cosines_of, vectors_of
from toolpost.discovery.search.weights import Weights
from toolpost.discovery.search.words import SYNONYMS, Action, ParsedQuery, words_of

Rows = NDArray[np.int32]
Numbers = NDArray[np.float32]
Actions = NDArray[np.int8]


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


MAX_WORDS = 512
"""How many distinct words of a query are looked up, the rarest first."""

Mask = NDArray[np.bool_]
Shortlist = NDArray[np.intp]

_T = TypeVar("_T", bound=np.generic)
_TINY = np.float32(1e-9)
_NO_ROWS: Rows = np.zeros(0, np.int32)
_NO_NUMBERS: Numbers = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class TermPostings:
    """A word among the visible documents: its rarity, the rows that contain it, its impact on each."""

    rarity: float
    rows: Rows
    impacts: Numbers


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A word of a query, and how much it adds to which rows, directly or through a synonym."""

    rarity: float
    own_rows: Rows
    """The rows that contain the word itself."""
    rows: Rows
    amounts: Numbers


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The postings of all segments, limited to the visible documents."""

    parts: Sequence[tuple[int, Postings]]
    """The postings of each segment, with the number of its first row."""
    visible: Mask
    count: int
    """How many documents are visible."""

    def look_up(self, words: Iterable[str], synonym_weight: float) -> dict[str, QueryTerm]:
        terms = {word: self._weigh(word, synonym_weight) for word in words}
        if len(terms) <= MAX_WORDS:
            return terms
        return dict(sorted(terms.items(), key=lambda item: (-item[1].rarity, item[0]))[:MAX_WORDS])

    def sum_terms(self, words: Iterable[str], terms: Mapping[str, QueryTerm]) -> Numbers:
        """Add up, for every row, the amounts of those of `words` that are in `terms`."""
        known = [terms[word] for word in words if word in terms]
        if not known:
            return np.zeros(len(self.visible), np.float32)
        rows = _concatenate([term.rows for term in known])
        amounts = _concatenate([term.amounts for term in known])
        return np.bincount(rows, amounts, len(self.visible)).astype(np.float32)

    def _weigh(self, word: str, synonym_weight: float) -> QueryTerm:
        own = self._find(word)
        rows, amounts = [own.rows], [own.impacts * own.rarity]
        for synonym in SYNONYMS.get(word, ()):
            other = self._find(synonym)
            if len(other.rows):
                # The rarity of the commoner word counts: a rare word must not make its common synonym weigh like a rare one.
                rows.append(other.rows)
                amounts.append(other.impacts * (synonym_weight * min(own.rarity, other.rarity)))
        return QueryTerm(own.rarity, own.rows, _concatenate(rows), _concatenate(amounts))

    def _find(self, word: str) -> TermPostings:
        rows: list[Rows] = []
        impacts: list[Numbers] = []
        for start, postings in self.parts:
            if (found := postings.find(word)) is not None:
                rows.append(found[0] + start if start else found[0])
                impacts.append(found[1])
        if not rows:
            return TermPostings(self._rarity(0), _NO_ROWS, _NO_NUMBERS)
        all_rows, all_impacts = _concatenate(rows), _concatenate(impacts)
        if self.count < len(self.visible):
            is_visible = self.visible[all_rows]
            all_rows, all_impacts = all_rows[is_visible], all_impacts[is_visible]
        return TermPostings(self._rarity(len(all_rows)), all_rows, all_impacts)

    def _rarity(self, document_count: int) -> float:
        """BM25's inverse document frequency."""
        return math.log1p((self.count - document_count + 0.5) / (document_count + 0.5))


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """All documents by row, and which of them are visible."""

    lexicon: Lexicon
    servers: NDArray[np.int32]
    """The number of each row's server; -1 for a tool without one."""
    actions: Actions
    """What each row's tool does (`Action`)."""
    vectors: Sequence[Vectors]
    vectors_at: Callable[[Shortlist], Vectors]

    @property
    def visible(self) -> Mask:
        return self.lexicon.visible


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """How good the best match is in itself, not only compared with the others."""

    cosine: float = 0.0
    coverage: float = 0.0
    """The share of the query's words that it contains, weighted by rarity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The best rows, in no order, the score of each, and what the scores were made of."""

    rows: Shortlist
    totals: Numbers
    cosines: Numbers
    """By row, of all documents."""
    terms: dict[str, QueryTerm]

    def find_evidence(self, row: int) -> Evidence:
        """Return the evidence for a row, mostly the best: the engine knows which of several equal ones is first."""
        covered = sum(term.rarity for term in self.terms.values() if _has_row(term.own_rows, row))
        total = sum(term.rarity for term in self.terms.values())
        return Evidence(cosine=float(self.cosines[row]), coverage=covered / max(total, float(_TINY)))


def score_documents(query: ParsedQuery, corpus: Corpus, weights: Weights, limit: int) -> Scores:
    """Score at least the `limit` best of the visible documents.

    All are compared with the whole query; only a shortlist with its clauses and with each other.
    """
    terms = corpus.lexicon.look_up(query.words, weights.synonym)
    vectors = vectors_of(query.texts)
    lexical = corpus.lexicon.sum_terms(query.words, terms)
    # Each segment apart: no copy of all vectors for one query.
    cosines = np.concatenate([cosines_of(segment_vectors, vectors[0]) for segment_vectors in corpus.vectors])
    if corpus.lexicon.count < len(corpus.visible):
        # Hidden tools are out before the best cosine is taken: by it all others are scaled.
        cosines[~corpus.visible] = 0
    totals = _mix(lexical, cosines, weights)
    rows = _shortlist(totals, max(limit, weights.shortlist))
    best = totals[rows]
    if len(query.texts) > 1:
        by_clause = _score_by_clause(rows, query, terms, vectors[1:], corpus, weights)
        best = np.float32(1 - weights.clause) * best + np.float32(weights.clause) * by_clause
    if query.action:
        actions = corpus.actions[rows]
        is_other = (actions != Action.UNKNOWN) & (actions != query.action)
        best = best * np.where(is_other, np.float32(1 - weights.other_action), np.float32(1))
    best = _pull_to_servers(best, corpus.servers[rows], weights)
    return Scores(rows=rows, totals=best, cosines=cosines, terms=terms)


def _mix(lexical: Numbers, cosines: Numbers, weights: Weights) -> Numbers:
    words = np.float32(1 - weights.meaning) / max(lexical.max(initial=0), _TINY)
    meaning = np.float32(weights.meaning) / max(cosines.max(initial=0), _TINY)
    mixed: Numbers = words * lexical + meaning * np.maximum(cosines, 0)
    return mixed


def _shortlist(totals: Numbers, size: int) -> Shortlist:
    """Return the best rows; of equal scores all or none, because the order of the rows is arbitrary."""
    if len(totals) <= size:
        return np.flatnonzero(totals > 0)
    least = np.partition(totals, len(totals) - size)[len(totals) - size]
    return np.flatnonzero(totals >= least) if least > 0 else np.flatnonzero(totals > 0)


def _score_by_clause(
    rows: Shortlist,
    query: ParsedQuery,
    terms: dict[str, QueryTerm],
    clause_vectors: Vectors,
    corpus: Corpus,
    weights: Weights,
) -> Numbers:
    """Return the score of each row for the clause that it fits best."""
    vectors = corpus.vectors_at(rows)
    best = np.zeros(len(rows), np.float32)
    for words, vector in zip(query.words_by_text[1:], clause_vectors, strict=True):
        lexical = corpus.lexicon.sum_terms(words, terms)[rows]
        np.maximum(best, _mix(lexical, cosines_of(vectors, vector), weights), out=best)
    return best


def _pull_to_servers(totals: Numbers, servers: NDArray[np.int32], weights: Weights) -> Numbers:
    """Raise each tool a little toward the best of its server, whose other tools are often needed next."""
    unique, numbers = np.unique(servers, return_inverse=True)
    best = np.zeros(len(unique), np.float32)
    np.maximum.at(best, numbers, totals)
    lift = np.where(servers >= 0, best[numbers] - totals, 0)
    return (totals + np.float32(weights.server_prior) * lift).astype(np.float32)


def _has_row(rows: Rows, row: int) -> bool:
    """Search by bisection; the rows of a word are sorted."""
    position = int(rows.searchsorted(row))
    return position < len(rows) and int(rows[position]) == row


def _concatenate(arrays: Sequence[NDArray[_T]]) -> NDArray[_T]:
    # Most words are in one segment: no copy for them.
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
