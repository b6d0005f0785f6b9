"""The search index of tools: prepared in the background, replaced as a whole, searched from any thread."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from toolpost.discovery.search.document import ToolDocument
from toolpost.discovery.search.query import ParsedQuery, find_matches
from toolpost.discovery.search.ranking import RankedTool, Ranking, estimate_confidence, is_weak

if TYPE_CHECKING:
    from toolpost.discovery.search.engine import Engine


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
