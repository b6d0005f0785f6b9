"""Whatever is asked, and whatever a server calls itself: an answer, in bounded time."""

import json
import time
from typing import Any

import pytest

from tests.discovery.search.shop import TOOLS
from tests.hostile.attacks import slowness
from toolpost.discovery.search import SearchIndex, ToolDocument

INDEX = SearchIndex.prepare(TOOLS)

ODD = {
    "empty": "",
    "blank": " \t\r\n",
    "stop words": "what is it that you would have for me",
    "controls": "\x00\x01\x1b[\x7f\u200b\u202e",
    "emoji": "🦊🎉👩‍👩‍👧‍👦",
    "lone surrogate": "\ud800 mail \udfff",
    "punctuation": "?!;." * 500,
    "one long word": "a" * 100_000,
    "many words": " ".join(f"word{n}" for n in range(14_000)),
    "many clauses": "send an email now. " * 5_000,
    "many marks": "e" + "\u0301" * 50_000,
    "expanding letters": "\ufdfa" * 30_000,
    "chinese": "查询明天的天气预报" * 5_000,
    "digits": "1" * 50_000 + " " + "7 " * 20_000,
    "regular expression": "(a+)+$" * 10_000,
}


@pytest.mark.parametrize("query", ODD.values(), ids=ODD.keys())
def test_odd_queries_are_answered_soon(query: str) -> None:
    before_s = time.process_time()
    ranking = INDEX.rank(query, explain=True)

    assert time.process_time() - before_s < 10 * slowness()
    assert len(ranking.hits) <= len(TOOLS)
    assert 0 <= ranking.confidence <= 1


@pytest.mark.parametrize("name", ["empty", "blank", "controls", "emoji", "punctuation"])
def test_what_has_no_words_finds_nothing_and_says_so(name: str) -> None:
    ranking = INDEX.rank(ODD[name])

    assert (ranking.hits, ranking.is_weak, ranking.confidence) == ([], True, 0.0)


def test_code_and_json_are_read_as_words() -> None:
    wish = json.dumps({"tool": "send_email", "to": ["ana@example.com"]})
    code = "import stripe\nstripe.Refund.create(charge='ch_1')  # give the money back"

    assert INDEX.rank(wish).hits[0].name == "gmail__send_email"
    assert INDEX.rank(code).hits[0].name == "stripe__create_refund"


@pytest.mark.parametrize(
    ("query", "description"),
    [
        ("明日の天気予報を教えて", "天気予報を取得する"),
        ("查询天气", "查询某个城市的天气"),
        ("погода в Москве", "Погода и прогноз"),
        ("größe ändern", "Grosse Bilder: GRÖSSE ÄNDERN"),
        ("météo", "Prévisions METEO"),
        ("날씨 알려줘", "날씨를 조회한다"),
        ("สภาพอากาศ", "ตรวจสอบสภาพอากาศ"),
    ],
)
def test_other_scripts_are_found_by_their_own(query: str, description: str) -> None:
    index = SearchIndex.prepare([*TOOLS, ToolDocument(name="wetter__x", server="wetter", description=description)])

    assert index.rank(query).hits[0].name == "wetter__x"


def test_odd_definitions_are_searched_as_far_as_they_go() -> None:
    wide = {f"p{n}": {"description": "y" * 1000} for n in range(3_000)}
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(500):
        deep = {"type": "object", "properties": {"inner": deep}}
    schemas: list[dict[str, Any]] = [
        {},
        {"properties": []},
        {"properties": {"a": True, "b": {"enum": 3, "description": 7}}},
        {"properties": wide},
        deep,
    ]
    odd = [ToolDocument(name=f"odd__{n}", server="odd", input_schema=schema) for n, schema in enumerate(schemas)]
    odd.append(ToolDocument(name="odd__long", server="odd", description="word " * 300_000 + "unreached"))
    odd.append(ToolDocument(name="", server="", description="\x00\ud800"))
    before_s = time.process_time()
    index = SearchIndex.prepare([*TOOLS, *odd])

    assert time.process_time() - before_s < 20 * slowness()
    assert len(index) == len(TOOLS) + len(odd)
    assert index.rank("odd", limit=1).hits[0].name.startswith("odd__")


def test_of_two_with_one_name_the_later_counts() -> None:
    index = SearchIndex.prepare(
        [ToolDocument(name="a", description="pears"), ToolDocument(name="a", description="apples")]
    )

    assert len(index) == 1
    assert index.rank("apples").hits[0].score > index.rank("pears").hits[0].score
