"""How much of a whole task one search finds: several queries of a set, joined in one sentence."""

import json
from dataclasses import dataclass, replace
from statistics import mean

from bench.search.sets import Query, Set
from toolpost.discovery.finder import BUDGET_TOKENS, LARGEST_TOKENS, MAX_TOOLS, MIN_TOOLS, NEXT_NAMES
from toolpost.discovery.search import SearchIndex, cut, estimate_tokens


@dataclass(frozen=True)
class Found:
    """The share of the needed tools that a search returns with their definitions, and with the names after them."""

    defined: float
    named: float


def found_of_tasks(one: Set, steps: int, most: int) -> Found:
    """Ask tasks of so many steps, made of the half that no weight was chosen on."""
    index = SearchIndex.prepare(one.tools)
    sizes = {
        tool.name: estimate_tokens(json.dumps([tool.name, tool.description, tool.input_schema])) for tool in one.tools
    }
    queries = one.half(choosing=False, most=most)
    tasks = [queries[number : number + steps] for number in range(0, len(queries) - steps + 1, steps)]
    found = [_of_one(index, sizes, task) for task in tasks]
    return Found(mean(each.defined for each in found), mean(each.named for each in found))


def _of_one(index: SearchIndex, sizes: dict[str, int], task: list[Query]) -> Found:
    gold = frozenset[str]().union(*(query.gold for query in task))
    ranking = index.rank(", and then ".join(query.text.rstrip(" .?!") for query in task))
    small = [hit for hit in ranking.hits if sizes[hit.name] <= LARGEST_TOKENS]
    hits = cut(
        replace(ranking, hits=small),
        sizes_in_tokens=sizes.__getitem__,
        budget_tokens=BUDGET_TOKENS,
        least=MIN_TOOLS,
        most=MAX_TOOLS,
    )
    defined = {hit.name for hit in hits}
    further = [hit.name for hit in ranking.hits if hit.name not in defined][:NEXT_NAMES]
    return Found(len(gold & defined) / len(gold), len(gold & {*defined, *further}) / len(gold))
