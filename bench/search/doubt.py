"""How well a weak match is told from a good one: every query is asked with the right tools there, and without."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.search.sets import Set, all_sets
from toolpost.discovery.search import SearchIndex


@dataclass(frozen=True, kw_only=True)
class Doubt:
    about: str
    auc: float
    """How often, of a good match and one without the right tool, the good one is surer."""
    doubted_good: float
    doubted_bad: float

    @property
    def precision(self) -> float:
        """How often a doubt is right, if good and bad are equally frequent."""
        return self.doubted_bad / max(self.doubted_bad + self.doubted_good, 1e-9)


def doubts(most: int) -> list[Doubt]:
    found: list[Doubt] = []
    all_good: list[tuple[float, bool]] = []
    all_bad: list[tuple[float, bool]] = []
    all_foreign: list[tuple[float, bool]] = []
    for one, other in zip(all_sets(), [*all_sets()[1:], all_sets()[0]], strict=True):
        good, bad, foreign = _asked(one, other, most)
        found.append(_doubt(f"{one.name}: the right tools taken away", good, bad))
        if one.is_unseen:
            all_good += good
            all_bad += bad
            all_foreign += foreign
    found.append(_doubt("all but MetaTool: the right tools taken away", all_good, all_bad))
    found.append(_doubt("all but MetaTool: a query of another set", all_good, all_foreign))
    return found


def _asked(one: Set, other: Set, most: int) -> tuple[list[tuple[float, bool]], ...]:
    index = SearchIndex.prepare(one.tools)
    names = frozenset(tool.name for tool in one.tools)
    queries = one.half(choosing=False, most=most)
    good = [index.rank(query.text, limit=1) for query in queries]
    bad = [index.rank(query.text, limit=1, among=names - query.gold) for query in queries]
    foreign = [index.rank(query.text, limit=1) for query in other.half(choosing=False, most=most)]
    return tuple([(ranking.confidence, ranking.is_weak) for ranking in some] for some in (good, bad, foreign))


def _doubt(about: str, good: Sequence[tuple[float, bool]], bad: Sequence[tuple[float, bool]]) -> Doubt:
    wins = sum((a > b) + (a == b) / 2 for a, _ in good for b, _ in bad)
    return Doubt(
        about=about,
        auc=wins / (len(good) * len(bad)),
        doubted_good=sum(is_weak for _, is_weak in good) / len(good),
        doubted_bad=sum(is_weak for _, is_weak in bad) / len(bad),
    )
