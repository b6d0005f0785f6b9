"""What a query costs, and an index, and one changed tool; in CPU time, which the load of the machine hardly changes."""

import gc
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean, median

import anyio

from bench.search.peers import Bm25s, FastMcp
from bench.search.sets import all_sets, mixed, mixed_queries
from toolpost.discovery.search import SearchIndex, ToolDocument, cut, estimate_tokens

SIZES = (3_600, 10_000, 100_000)


@dataclass(frozen=True, kw_only=True)
class Cost:
    tools: int
    index_cpu_s: float
    change_ms: float
    query_p50_ms: float
    query_p95_ms: float
    narrowed_p50_ms: float
    """For a caller who may see every second tool."""


def cost(count: int, *, rounds: int) -> Cost:
    tools = mixed(count)
    gc.collect()
    before = time.process_time()
    index = SearchIndex.prepare(tools)
    index_cpu_s = time.process_time() - before
    queries = mixed_queries(50)
    some = frozenset(tool.name for tool in tools[::2])
    wide = _best(lambda: _times_ms(index.rank, queries), rounds)
    narrow = _best(lambda: _times_ms(lambda query: index.rank(query, among=some), queries), rounds)
    return Cost(
        tools=count,
        index_cpu_s=index_cpu_s,
        change_ms=_change_ms(tools, index, rounds=max(rounds, 5)),
        query_p50_ms=median(wide),
        query_p95_ms=sorted(wide)[int(len(wide) * 0.95)],
        narrowed_p50_ms=median(narrow),
    )


def peers_p50_ms(count: int, *, rounds: int) -> dict[str, float]:
    """Ask the peers the same, as often."""
    tools, queries = mixed(count), mixed_queries(50)
    own = Bm25s(tools)
    fast = FastMcp(tools)
    return {
        "bm25s": median(_best(lambda: _times_ms(lambda query: own.rank(query, 50), queries), rounds)),
        "FastMCP": median(_best(lambda: anyio.run(_times_of_fastmcp, fast, queries[::4]), 1)),
    }


async def _times_of_fastmcp(fast: FastMcp, queries: Sequence[str]) -> list[float]:
    marks = [time.process_time()]
    await fast.ranks(queries, lambda _: marks.append(time.process_time()))
    return [1000 * (after - before) for before, after in pairwise(marks)]


def _times_ms(ask: Callable[[str], object], queries: Sequence[str]) -> list[float]:
    found = []
    for query in queries:
        before = time.process_time()
        ask(query)
        found.append(1000 * (time.process_time() - before))
    return found


def _best(measure: Callable[[], list[float]], rounds: int) -> list[float]:
    """Keep the quietest of several rounds: whatever else the machine does only ever adds."""
    return min((measure() for _ in range(rounds)), key=median)


def _change_ms(tools: Sequence[ToolDocument], index: SearchIndex, *, rounds: int) -> float:
    times = []
    for number in range(rounds):
        changed = list(tools)
        changed[number] = replace(tools[number], description="Something else", digest=f"changed {number}")
        before = time.process_time()
        index = SearchIndex.prepare(changed, index)
        times.append(1000 * (time.process_time() - before))
        tools = changed
    return median(times)


def saved_share(count: int) -> tuple[float, float]:
    """Say which share of a listing's tokens a search saves, and how many it costs, over the sets that have so many tools."""
    shares, costs = [], []
    for one in all_sets():
        if len(one.tools) < count:
            continue
        tools = one.tools[:count]
        sizes = {tool.name: estimate_tokens(json.dumps(_definition(tool))) for tool in tools}
        index = SearchIndex.prepare(tools)
        for query in one.half(choosing=False, most=100):
            hits = cut(index.rank(query.text), sizes_in_tokens=sizes.__getitem__, budget_tokens=4000)
            costs.append(sum(sizes[hit.name] for hit in hits))
            shares.append(1 - costs[-1] / sum(sizes.values()))
    return mean(shares), mean(costs)


def _definition(tool: ToolDocument) -> dict[str, object]:
    return {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
