"""Tools found by need, among what the caller sees: ranked, reranked where that is configured, cut to what is worth it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from anyio import to_thread

from toolpost.discovery.preparation import Preparation
from toolpost.discovery.reranker import Candidate, Reranker
from toolpost.discovery.search import Hit, Ranking, cut
from toolpost.discovery.snapshot import Visible
from toolpost.discovery.views import EVERYTHING, View

if TYPE_CHECKING:
    from toolpost.discovery.embedder import Embedder

LEAST: Final = 5
MOST: Final = 15
"""At most so many tools are handed out at once; where there are no more than that in all, they are, whatever the query."""

BUDGET_TOKENS: Final = 4_000

NEXT_NAMES: Final = 35
"""How many tools behind those that are handed out are named: for some 300 tokens an agent can reach 0.90 instead of 0.74 of
the tools that it needs (LiveMCPBench)."""
QUERY_LIMIT: Final = 4_000

KEPT_BY_US: Final = 3
"""The best of our own ranking stay in, whatever a reranker says."""

ON_THE_LOOP: Final = 5_000
"""Among more tools than this, a ranking takes long enough to leave the loop to others meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """The tools that fit, best first."""

    visible: Visible
    hits: Sequence[Hit]
    is_weak: bool = False
    sureness: float = 1.0
    is_reranked: bool = False
    next_names: Sequence[str] = ()
    """Tools that fit less well, best first; where nothing fits, the best known."""

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [hit.name for hit in self.hits]


class Finder:
    """Searches for everybody, and remembers nothing of anybody."""

    def __init__(
        self,
        preparation: Preparation,
        *,
        uses: Mapping[str, int],
        reranker: Reranker | None = None,
        embedder: "Embedder | None" = None,
    ) -> None:
        """Take also how often each tool has been called, by name: without a query the best known come first."""
        self.preparation = preparation
        self._uses = uses
        self._reranker = reranker
        self._embedder = embedder

    async def visible(self, view: View) -> Visible:
        """Return what a view shows, ready to be searched."""
        return (await self.preparation.snapshot()).seen_through(view)

    async def find(
        self, query: str, view: View = EVERYTHING, *, limit: int | None = None, explain: bool = False
    ) -> Found:
        """Rank what a view shows, and keep what is worth its tokens, `limit` tools at most; of a few tools, all."""
        most = MOST if limit is None else limit
        visible = await self.visible(view)
        asked = query[:QUERY_LIMIT]
        ranking = await self._rank(visible, asked, explain=explain)
        found = Found(visible=visible, hits=ranking.hits, is_weak=ranking.is_weak, sureness=ranking.sureness)
        if len(visible) <= most:
            others = [Hit(name=name, score=0.0) for name in visible.names if name not in set(found.names)]
            return replace(found, hits=[*ranking.hits, *others])
        if self._reranker is not None and (order := await self._reranker.order(asked, _candidates(found))):
            found = replace(found, hits=_reordered(found, order)[:most], is_reranked=True)
        else:
            least = min(LEAST, most)
            kept = cut(ranking, sizes_in_tokens=_sizes(visible), budget_tokens=BUDGET_TOKENS, least=least, most=most)
            found = replace(found, hits=kept)
        return replace(found, next_names=self._next(ranking, found))

    async def unasked(self, seen: Mapping[str, str], view: View, *, limit: int | None = None) -> Found:
        """Without a query: what has not been seen yet, the best known first, capped."""
        most = MOST if limit is None else limit
        visible = await self.visible(view)
        unseen = (name for name in self._best_known(visible) if seen.get(name) != visible.entry(name).digest)
        hits = [Hit(name=name, score=0.0) for name in islice(_within_budget(unseen, _sizes(visible)), most)]
        return Found(visible=visible, hits=hits)

    async def _rank(self, visible: Visible, query: str, *, explain: bool) -> Ranking:
        ranking = await _ranked(visible, query, explain=explain)
        return ranking if self._embedder is None else await self._embedder.adjust(query, ranking)

    def _next(self, ranking: Ranking, found: Found) -> list[str]:
        """Name what stands behind the tools that are handed out; where nothing speaks for any, the best known."""
        ranked = (hit.name for hit in ranking.hits) if ranking.hits else self._best_known(found.visible)
        handed_out = set(found.names)
        return list(islice((name for name in ranked if name not in handed_out), NEXT_NAMES))

    def _best_known(self, visible: Visible) -> Iterable[str]:
        called = sorted((name for name in self._uses if name in visible), key=lambda name: -self._uses[name])
        return dict.fromkeys(chain[str](called, visible.in_turn))


async def _ranked(visible: Visible, query: str, *, explain: bool) -> Ranking:
    def rank() -> Ranking:
        return visible.index.rank(query, among=visible.among, explain=explain)

    return rank() if len(visible) <= ON_THE_LOOP else await to_thread.run_sync(rank)


def _candidates(found: Found) -> list[Candidate]:
    entries = [found.visible.entry(name) for name in found.names]
    return [
        Candidate(name=hit.name, description=entry.description, digest=entry.digest)
        for hit, entry in zip(found.hits, entries, strict=True)
    ]


def _reordered(found: Found, order: Sequence[str]) -> list[Hit]:
    """Take the tools that a reranker chose, in its order, our own best in any case, and never too few."""
    hits = {hit.name: hit for hit in found.hits}
    ours = found.names[:KEPT_BY_US]
    wanted = list(dict.fromkeys([*order, *ours]))
    wanted += [name for name in found.names if name not in set(wanted)][: max(0, LEAST - len(wanted))]
    kept = set(_within_budget(dict.fromkeys([*ours, *wanted]), _sizes(found.visible)))
    return [hits[name] for name in wanted if name in kept]


def _sizes(visible: Visible) -> Callable[[str], int]:
    return lambda name: visible.entry(name).tokens


def _within_budget(names: Iterable[str], size_of: Callable[[str], int]) -> Iterator[str]:
    """Take names in order until there are enough; one that is too large is passed over, but for the first."""
    spent = count = 0
    for name in names:
        size = size_of(name)
        if count and spent + size > BUDGET_TOKENS:
            continue
        yield name
        spent, count = spent + size, count + 1
        if count == MOST or spent >= BUDGET_TOKENS:
            return
