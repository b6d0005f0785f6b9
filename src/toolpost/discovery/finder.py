"""Search the tools that a caller sees: rank, rerank where that is configured, and keep what is worth its tokens."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Final

from anyio import to_thread

from toolpost.discovery.preparation import Preparation
from toolpost.discovery.reranker import RerankCandidate, Reranker
from toolpost.discovery.search import RankedTool, cut
from toolpost.discovery.snapshot import VisibleTools
from toolpost.discovery.views import EVERYTHING, View

MIN_TOOLS: Final = 5
MAX_TOOLS: Final = 15
"""How many tools a search returns. Where a view has no more than that, it returns all, whatever the query."""

BUDGET_TOKENS: Final = 4_000
LARGEST_TOKENS: Final = BUDGET_TOKENS // 3
"""A larger definition is only named, unless the query has the tool's exact name: it would take the place of all others."""

NEXT_NAMES: Final = 35
"""How many further tools are named without their definitions, for about 300 tokens. For tasks of three steps in one query an
agent reaches 0.89 of the tools that it needs, 0.76 without the names; for five steps 0.85 and 0.64 (`scripts/bench search`).
Names of further servers gained nothing: with the best tool of each as the last ten names it was 0.91 instead of 0.89 on the half
of the queries for choosing, and 0.880 instead of 0.885 on the other."""
QUERY_LIMIT: Final = 4_000

LOCAL_BEST: Final = 3
"""The best tools of the local ranking stay in the result, whatever a reranker answers."""

MAX_RANKED_ON_LOOP: Final = 5_000
"""More tools than this are ranked in a thread, so as not to block the event loop."""


@dataclass(frozen=True, kw_only=True)
class ToolSearchResult:
    """The tools that fit, best first."""

    visible: VisibleTools
    hits: Sequence[RankedTool]
    is_weak: bool = False
    confidence: float = 1.0
    is_reranked: bool = False
    next_names: Sequence[str] = ()
    """Tools that fit less well, best first; where nothing fits, the most used."""
    too_large: Sequence[str] = ()
    """Those of `next_names` that fit as well as the hits, and whose definitions take too many tokens."""

    @property
    def names(self) -> list[str]:
        return [hit.name for hit in self.hits]


class Finder:
    """Searches for all callers; keeps no state of any of them."""

    def __init__(self, preparation: Preparation, *, uses: Mapping[str, int], reranker: Reranker | None = None) -> None:
        """`uses` counts the calls of each tool by name: without a query the most used come first."""
        self.preparation = preparation
        self._uses = uses
        self._reranker = reranker

    async def visible(self, view: View) -> VisibleTools:
        """Return what a view shows; waits for the index as `Preparation.snapshot` does."""
        snapshot = await self.preparation.snapshot()
        if view.owner:
            snapshot = await to_thread.run_sync(snapshot.for_owner, view.owner)
            view = view.of_owner("")
        return snapshot.narrow(view)

    async def find(
        self, query: str, view: View = EVERYTHING, *, limit: int | None = None, explain: bool = False
    ) -> ToolSearchResult:
        """Return the tools that fit, `limit` at most; if the view has no more tools than that, all of them."""
        most = MAX_TOOLS if limit is None else limit
        visible = await self.visible(view)
        # Cut before it is ranked: the time of everything below grows with it, and a caller chooses its length.
        query = query[:QUERY_LIMIT]
        rank = partial(visible.index.rank, query, among=visible.among, explain=explain)
        ranking = rank() if len(visible) <= MAX_RANKED_ON_LOOP else await to_thread.run_sync(rank)
        sizes = _token_sizes(visible)
        wanted_names = set(query.split())
        wanted = {
            hit.name for hit in ranking.hits if not wanted_names.isdisjoint((hit.name, visible.listed_name(hit.name)))
        }
        named = [hit for hit in ranking.hits if hit.name in wanted]
        small = [hit for hit in ranking.hits if hit.name not in wanted and sizes(hit.name) <= LARGEST_TOKENS]
        found = ToolSearchResult(
            visible=visible, hits=[*named, *small], is_weak=ranking.is_weak, confidence=ranking.confidence
        )
        if len(visible) <= most:
            # To leave any out would save nothing: a model with a small view is given all of it, the best first. What is large is
            # named all the same, unless everything together fits the budget.
            ranked = {hit.name for hit in ranking.hits}
            others = [RankedTool(name=name, score=0.0) for name in visible.names if name not in ranked]
            hits = [*ranking.hits, *others]
            kept_back = [hit.name for hit in hits if hit.name not in wanted and sizes(hit.name) > LARGEST_TOKENS]
            large = kept_back if visible.tokens > BUDGET_TOKENS else []
            hits = [hit for hit in hits if hit.name not in large]
            return replace(found, hits=hits, next_names=large, too_large=large)
        if self._reranker is not None and (order := await self._reranker.order(query, _candidates_of(found))):
            found = replace(found, hits=_apply_order(found, order)[:most], is_reranked=True)
        else:
            least = min(MIN_TOOLS, most)
            kept = cut(
                replace(ranking, hits=found.hits),
                sizes_in_tokens=sizes,
                budget_tokens=BUDGET_TOKENS,
                least=least,
                most=most,
            )
            found = replace(found, hits=kept)
        # Where nothing fits, the most used tools are named: better than no name at all.
        further = (hit.name for hit in ranking.hits) if ranking.hits else self._most_used(visible)
        returned = set(found.names)
        next_names = list(islice((name for name in further if name not in returned), NEXT_NAMES))
        well_ranked = {hit.name for hit in ranking.hits[: len(found.hits) + 1]}
        too_large = [name for name in next_names if name in well_ranked and sizes(name) > LARGEST_TOKENS]
        return replace(found, next_names=next_names, too_large=too_large)

    async def suggest(self, seen: Mapping[str, str], view: View, *, limit: int | None = None) -> ToolSearchResult:
        """Return tools for a search without a query: those that are not in `seen` (digests by name), the most used first."""
        most = MAX_TOOLS if limit is None else limit
        visible = await self.visible(view)
        unseen = (name for name in self._most_used(visible) if seen.get(name) != visible.entry(name).digest)
        hits = [
            RankedTool(name=name, score=0.0) for name in islice(_within_budget(unseen, _token_sizes(visible)), most)
        ]
        return ToolSearchResult(visible=visible, hits=hits)

    def _most_used(self, visible: VisibleTools) -> Iterable[str]:
        """Return all visible tools, the most called first, then those that were never called, in turn from each server."""
        called = sorted((name for name in self._uses if name in visible), key=lambda name: -self._uses[name])
        return dict.fromkeys(chain[str](called, visible.round_robin))


def _candidates_of(found: ToolSearchResult) -> list[RerankCandidate]:
    entries = {name: found.visible.entry(name) for name in found.names}
    return [
        RerankCandidate(name=name, description=entry.description, digest=entry.digest)
        for name, entry in entries.items()
    ]


def _apply_order(found: ToolSearchResult, order: Sequence[str]) -> list[RankedTool]:
    """Return the tools that the reranker chose, in its order, then the local best, filled up to `MIN_TOOLS`."""
    hits = {hit.name: hit for hit in found.hits}
    local_best = found.names[:LOCAL_BEST]
    chosen = list(dict.fromkeys([*order, *local_best]))
    chosen += [name for name in found.names if name not in set(chosen)][: max(0, MIN_TOOLS - len(chosen))]
    # The budget goes to the local best first: a reranker cannot push them out with large definitions.
    kept = set(_within_budget(dict.fromkeys([*local_best, *chosen]), _token_sizes(found.visible)))
    return [hits[name] for name in chosen if name in kept]


def _token_sizes(visible: VisibleTools) -> Callable[[str], int]:
    return lambda name: visible.entry(name).tokens


def _within_budget(names: Iterable[str], size_of: Callable[[str], int]) -> Iterator[str]:
    """Yield names in order while they fit the token budget; one that does not is skipped, except the first."""
    spent = count = 0
    for name in names:
        size = size_of(name)
        if count and spent + size > BUDGET_TOKENS:
            continue
        yield name
        spent, count = spent + size, count + 1
        if count == MAX_TOOLS or spent >= BUDGET_TOKENS:
            return
