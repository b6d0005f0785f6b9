"""How often the right tools are among the first."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from statistics import mean

from bench.search.peers import EVERYBODY, Ranker
from bench.search.sets import Query, Set


@dataclass(frozen=True)
class Quality:
    recall_5: float
    recall_10: float
    mrr: float
    ndcg_5: float

    @classmethod
    def average(cls, several: Sequence["Quality"]) -> "Quality":
        return cls(*(mean(getattr(one, field) for one in several) for field in cls.__dataclass_fields__))


def quality(ranker: Ranker, queries: Sequence[Query]) -> Quality:
    return Quality.average([_of_one(ranker.rank(query.text, 10), query.gold) for query in queries])


def of_everybody(one: Set, most: int) -> dict[str, Quality]:
    """Ask everybody the half that no weight was chosen on."""
    queries = one.half(choosing=False, most=most)
    return {name: quality(make(one.tools), queries) for name, make in EVERYBODY.items()}


def _of_one(found: Sequence[str], gold: frozenset[str]) -> Quality:
    places = [place for place, name in enumerate(found) if name in gold]
    ideal = sum(1 / log2(place + 2) for place in range(min(5, len(gold))))
    return Quality(
        recall_5=sum(place < 5 for place in places) / len(gold),
        recall_10=len(places) / len(gold),
        mrr=1 / (places[0] + 1) if places else 0.0,
        ndcg_5=sum(1 / log2(place + 2) for place in places if place < 5) / ideal,
    )
