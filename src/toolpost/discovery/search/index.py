"""The index of tools by need: prepared in the background, swapped in whole, asked by anybody at once."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from toolpost.discovery.search.clauses import Request
from toolpost.discovery.search.document import Document
from toolpost.discovery.search.matching import matches_of
from toolpost.discovery.search.ranking import Hit, Ranking
from toolpost.discovery.search.sureness import is_weak, sureness_of

if TYPE_CHECKING:
    from toolpost.discovery.search.engine import Engine


class SearchIndex:
    """Documents ready to be searched. Never changes once prepared: many threads may ask one index."""

    def __init__(self, engine: "Engine") -> None:
        """Take an engine; `prepare` makes one."""
        self.engine = engine

    @classmethod
    def prepare(cls, documents: Iterable[Document], previous: "SearchIndex | None" = None) -> "SearchIndex":
        """Make an index of these documents and no others; what `previous` knows by digest is not read again.

        Pure computing, up to half a millisecond a document: the caller runs it in a thread. Of two documents of one name the
        later counts.
        """
        # Here alone numpy is loaded: no start and no `--help` waits for it.
        from toolpost.discovery.search.engine import Engine

        return cls(previous.engine.updated(documents) if previous is not None else Engine.of(documents))

    def __len__(self) -> int:
        return len(self.engine.rows)

    def rank(
        self, query: str, *, among: frozenset[str] | None = None, limit: int = 50, explain: bool = False
    ) -> Ranking:
        """Rank the tools that fit a query, best first, at most `limit`; those that do not fit at all are left out.

        `among` names the tools that the caller may see (None: all). The answer is then the one that an index of these alone
        would give: the others leave no trace in it. Keep one frozenset for one caller: what follows from it is kept with it.
        """
        request = Request.of(query)
        found, evidence = self.engine.best(request, among, limit)
        hits = [
            Hit(name=document.name, score=score, why=matches_of(request, document) if explain else ())
            for document, score in found
        ]
        sureness = sureness_of(evidence.cosine, evidence.coverage) if hits else 0.0
        return Ranking(hits=hits, is_weak=is_weak(sureness), sureness=sureness)
