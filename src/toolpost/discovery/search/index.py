"""The search index of tools, `SearchIndex`: prepared in the background, replaced as a whole, searched from any thread; and what a
search returns: tools from best to worst, how confident it is, and how many of them to return to a model (`cut`).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolpost.discovery.search.document import Field, ToolDocument, fields_of
from toolpost.discovery.search.words import SYNONYMS, WORD, ParsedQuery, words_of

if TYPE_CHECKING:
    from toolpost.discovery.search.engine import Engine


# Confidence is a logistic regression, fitted on one half of the queries of four public sets. Each query was asked twice: with the
# right tool in the index, and with it removed, so that its neighbors rank first. `docs/reference/search-quality.md` has the
# figures of the other half. The two inputs and the limit for "weak" were chosen with that half in view, so those figures may
# be a little too good.
_INTERCEPT = -1.4
_PER_COSINE = 2.3
_PER_COVERAGE = 1.1
_WEAK_BELOW = 0.4


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """Words of the query that a field of the tool contains, as the tool spells them."""

    field: Field
    words: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankedTool:
    """One tool, and how well it fits."""

    name: str
    score: float
    """Between 0 and 1; comparable within one ranking only."""
    why: Sequence[Match] = ()
    """Empty unless the search was asked to explain."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The tools that fit, best first."""

    hits: Sequence[RankedTool]
    is_weak: bool
    """Whether perhaps none of them fits. A hint for people and models: no tool is left out because of it."""
    confidence: float
    """The estimated probability that the index contains a tool that fits."""


def estimate_confidence(cosine: float, coverage: float) -> float:
    """Estimate the probability that the right tool is in the index, from a prior of 0.5."""
    return 1 / (1 + math.exp(-(_INTERCEPT + _PER_COSINE * cosine + _PER_COVERAGE * coverage)))


def is_weak(confidence: float) -> bool:
    """Whether to warn the model: at this limit one good match in nine is called weak too."""
    return confidence < _WEAK_BELOW


def estimate_tokens(text: str | bytes) -> int:
    """Estimate what a text costs a model: a quarter of its UTF-8 bytes. Measured on JSON, 3 to 19 % too high, never too low."""
    size_bytes = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    return -(-size_bytes // 4)


def cut(
    ranking: Ranking,
    *,
    sizes_in_tokens: Callable[[str], int],
    budget_tokens: int = 4000,
    least: int = 5,
    most: int = 15,
    share_of_best: float = 0.6,
) -> Sequence[RankedTool]:
    """Keep the tools worth their tokens: between `least` and `most`, near the best score, within the budget.

    The best tool is kept even if it exceeds the budget alone; any other that does is skipped.
    """
    kept: list[RankedTool] = []
    spent = 0
    best = ranking.hits[0].score if ranking.hits else 0.0
    for hit in ranking.hits[:most]:
        if len(kept) >= least and hit.score < share_of_best * best:
            break
        size = sizes_in_tokens(hit.name)
        if kept and spent + size > budget_tokens:
            continue
        kept.append(hit)
        spent += size
    return kept


class SearchIndex:
    """Documents ready to be searched; immutable, so threads may share it."""

    def __init__(self, engine: "Engine") -> None:
        self.engine = engine

    @classmethod
    def prepare(cls, documents: Iterable[ToolDocument], previous: "SearchIndex | None" = None) -> "SearchIndex":
        """Index exactly these documents; those that `previous` has with the same digest are not read again.

        Pure computation, up to 0.5 ms for each document: the caller runs it in a thread. Of two documents with one name the
        later counts.
        """
        # Imported here because it loads numpy, which neither a start nor `--help` should wait for.
        from toolpost.discovery.search.engine import Engine

        return cls(previous.engine.update(documents) if previous is not None else Engine.of(documents))

    def __len__(self) -> int:
        return len(self.engine.rows)

    def rank(
        self, query: str, *, among: frozenset[str] | None = None, limit: int = 50, explain: bool = False
    ) -> Ranking:
        """Rank the tools that fit a query, best first, at most `limit`; those that do not fit at all are left out.

        `among` names the tools that the caller may see (None: all). The answer is the one that an index of these alone would
        give: the others do not even influence how rare a word is. Pass the same frozenset for the same caller, because what
        is derived from it is cached.
        """
        parsed = ParsedQuery.parse(query)
        best, evidence = self.engine.find_best(parsed, among, limit)
        hits = [
            RankedTool(name=document.name, score=score, why=find_matches(parsed, document) if explain else ())
            for document, score in best
        ]
        confidence = estimate_confidence(evidence.cosine, evidence.coverage) if hits else 0.0
        return Ranking(hits=hits, is_weak=is_weak(confidence), confidence=confidence)


def index_texts(texts: Mapping[str, tuple[str, str]]) -> Callable[[str], Mapping[str, float]]:
    """Index texts by name, each a title and a description; return a function that finds them as tools are found.

    It takes a query and returns a number from 0 to 1 for each text that fits. These are comparable between queries too: the
    scores of a ranking are relative, and are multiplied with its confidence.
    """
    index = SearchIndex.prepare(
        ToolDocument(name=name, title=title, description=description) for name, (title, description) in texts.items()
    )

    def rank(query: str) -> Mapping[str, float]:
        ranking = index.rank(query, limit=len(texts))
        return {hit.name: min(1.0, hit.score) * ranking.confidence for hit in ranking.hits}

    return rank


def find_matches(query: ParsedQuery, document: ToolDocument) -> Sequence[Match]:
    """Return the matching words of each field, spelled as the tool spells them."""
    wanted = set(query.words).union(*(SYNONYMS.get(word, ()) for word in query.words))
    matches = []
    for field, text in fields_of(document).items():
        if field == "server description":
            # Untrusted instructions are indexed and never shown: these words are spelled as in the query.
            words = sorted(wanted.intersection(words_of(text)))
        else:
            words = [word for word in WORD.findall(text) if not wanted.isdisjoint(words_of(word))]
        if words:
            matches.append(Match(field=field, words=tuple(dict.fromkeys(words))))
    return matches
