"""However an index came about, and whoever asks: the same documents give the same answer, and no other one leaves a trace."""

import itertools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.discovery.search.shop import QUERIES, TOOLS
from toolpost.discovery.search import Ranking, SearchIndex, ToolDocument

_words = st.sampled_from(
    [*(word for query in QUERIES for word in query.split()), "xyzzy", "übergröße", "天気予報", "🦊", "getUserByID"]
)
_texts = st.lists(_words, max_size=12).map(" ".join)
_queries = _texts | st.text(max_size=40)


@st.composite
def _documents(draw: st.DrawFn) -> list[ToolDocument]:
    tools = draw(st.lists(st.sampled_from(TOOLS), unique_by=lambda tool: tool.name, max_size=len(TOOLS)))
    changed = draw(st.dictionaries(st.sampled_from([tool.name for tool in TOOLS]), _texts, max_size=6))
    return [
        replace(tool, description=changed[tool.name], digest=changed[tool.name]) if tool.name in changed else tool
        for tool in tools
    ]


def _answer(ranking: Ranking) -> tuple[list[tuple[str, float]], float, bool]:
    return [(hit.name, round(hit.score, 5)) for hit in ranking.hits], round(ranking.confidence, 5), ranking.is_weak


@given(histories=st.lists(_documents(), min_size=1, max_size=5), query=_queries)
@settings(max_examples=60, deadline=None)
def test_an_index_made_in_steps_answers_like_one_made_at_once(histories: list[list[ToolDocument]], query: str) -> None:
    stepwise: SearchIndex | None = None
    for documents in histories:
        stepwise = SearchIndex.prepare(documents, stepwise)
    assert stepwise is not None
    at_once = SearchIndex.prepare(histories[-1])

    assert len(stepwise) == len(at_once) == len(histories[-1])
    assert _answer(stepwise.rank(query)) == _answer(at_once.rank(query))


@given(documents=_documents(), query=_queries, data=st.data())
@settings(max_examples=60, deadline=None)
def test_what_a_caller_may_not_see_leaves_no_trace(
    documents: list[ToolDocument], query: str, data: st.DataObject
) -> None:
    names = data.draw(st.frozensets(st.sampled_from([tool.name for tool in TOOLS] + ["unknown"])))
    seen = SearchIndex.prepare(documents).rank(query, among=names)
    alone = SearchIndex.prepare([document for document in documents if document.name in names]).rank(query)

    assert {hit.name for hit in seen.hits} <= names
    assert _answer(seen) == _answer(alone)


@given(documents=_documents(), query=_queries, data=st.data())
@settings(max_examples=40, deadline=None)
def test_the_order_of_the_documents_does_not_matter(
    documents: list[ToolDocument], query: str, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(documents))

    assert _answer(SearchIndex.prepare(documents).rank(query)) == _answer(SearchIndex.prepare(shuffled).rank(query))


def test_of_equal_tools_the_first_by_name_is_the_evidence() -> None:
    names = {"github__create_issue", "postgres__query", "github__list_pull_requests", "postgres__describe_table"}
    documents = [tool for tool in TOOLS if tool.name in names]
    query = "open open open open open open container run"

    answers = [_answer(SearchIndex.prepare(order).rank(query)) for order in itertools.permutations(documents)]

    assert answers[0][0][0][1] == answers[0][0][1][1], "the two best are equal"
    assert answers == answers[:1] * len(answers)


def test_many_changes_one_by_one_stay_right() -> None:
    index = SearchIndex.prepare(_numbered(range(300)))
    for step in range(1, 150):
        index = SearchIndex.prepare(_numbered(range(step, 300 + step)), index)
    fresh = SearchIndex.prepare(_numbered(range(149, 449)))

    assert len(index) == 300
    for query in ("thing number 200", "thing number 3", "colour 7"):
        assert _answer(index.rank(query)) == _answer(fresh.rank(query))


def test_an_empty_index_is_a_previous_one_too() -> None:
    empty = SearchIndex.prepare([])
    filled = SearchIndex.prepare(TOOLS, empty)

    assert empty.rank("anything").hits == []
    assert len(SearchIndex.prepare([], filled)) == 0
    assert filled.rank("send an email").hits[0].name == "gmail__send_email"


def _numbered(numbers: range) -> list[ToolDocument]:
    return [
        ToolDocument(name=f"s__t{n}", server="s", description=f"Thing number {n} of colour {n % 11}", digest=str(n))
        for n in numbers
    ]
