"""How many tools are handed out, and what they cost."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.discovery.search.shop import QUERIES, TOOLS
from toolpost.discovery.search import RankedTool, Ranking, SearchIndex, cut, estimate_tokens


def _ranking(*scores: float) -> Ranking:
    hits = [RankedTool(name=f"t{number}", score=score) for number, score in enumerate(scores)]
    return Ranking(hits=hits, is_weak=False, confidence=1.0)


def _kept(ranking: Ranking, size: int = 100, budget: int = 100_000) -> int:
    return len(cut(ranking, sizes_in_tokens=lambda _: size, budget_tokens=budget))


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        ([], 0),
        ([0.9, 0.1], 2),
        ([0.9, *[0.1] * 20], 5),
        ([0.9, *[0.8] * 7, 0.53], 8),
        ([0.9, *[0.8] * 7, 0.55], 9),
        ([0.9] * 30, 15),
    ],
)
def test_the_cut_follows_the_scores(scores: list[float], kept: int) -> None:
    assert _kept(_ranking(*scores)) == kept


def test_the_budget_holds_but_the_best_is_always_given() -> None:
    assert _kept(_ranking(*[0.9] * 30), size=1000, budget=4000) == 4
    assert _kept(_ranking(0.9, 0.8), size=9000, budget=4000) == 1


def test_one_large_tool_does_not_keep_the_smaller_ones_out() -> None:
    sizes = {"t0": 1000, "t1": 9000, "t2": 1000}
    kept = cut(_ranking(0.9, 0.8, 0.7), sizes_in_tokens=sizes.__getitem__, budget_tokens=4000)

    assert [hit.name for hit in kept] == ["t0", "t2"]


@given(text=st.text())
def test_text_and_its_bytes_cost_the_same(text: str) -> None:
    assert estimate_tokens(text) == estimate_tokens(text.encode())
    assert estimate_tokens(text) * 4 >= len(text)


def test_a_text_that_is_no_unicode_costs_something_too() -> None:
    assert estimate_tokens("\ud800") == 1
    assert estimate_tokens("") == 0


def test_a_search_costs_a_fraction_of_a_listing() -> None:
    sizes = {tool.name: estimate_tokens(json.dumps(tool.input_schema) + tool.description + tool.name) for tool in TOOLS}
    index = SearchIndex.prepare(TOOLS)
    costs = [
        sum(sizes[hit.name] for hit in cut(index.rank(query), sizes_in_tokens=sizes.__getitem__, budget_tokens=4000))
        for query in QUERIES
    ]

    assert sum(costs) / len(costs) < 0.25 * sum(sizes.values())
