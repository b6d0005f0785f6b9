"""Searches that nobody should send: each gets a clear answer or a clear error, and memory stays bounded."""

import json
import tracemalloc
from typing import Any

import anyio
import pytest

from tests.discovery.asking import ask, office, text_of
from tests.plugins.office import OFFICE
from tests.ways import AUTOMATIC, QUICK_WAYS, Way, stdio_peer
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.store import seen
from toolpost.store.scripts import Script, Statement
from toolpost.testing import error_of

pytestmark = pytest.mark.anyio

STRANGE = {
    "empty": "",
    "blank": " \t\n ",
    "Chinese": "在日历中创建一个新的活动",
    "Arabic": "أنشئ حدثًا في التقويم",
    "emoji": "📅🎉 👩‍👩‍👧‍👦",
    "control characters": "create\x00\x01\x1b[31m an\x7f event\u202e\u2028",
    "combining": "e\u0301" * 2_000,
    "code": "SELECT * FROM events; DROP TABLE tools; --",
    "JSON": json.dumps({"query": ["create", {"event": None}]}),
    "a pattern": "(a+)+$" * 50 + "[" * 100,
    "one letter": "a",
    "one long word": "x" * 20_000,
    "punctuation": "?!.,;:" * 500,
    "100 KB": "create a calendar event " * 4_300,
    "a million characters": "z " * 500_000,
}


@pytest.mark.wire
@pytest.mark.parametrize("query", STRANGE.values(), ids=STRANGE.keys())
async def test_a_strange_query_gets_an_answer(query: str) -> None:
    async with Way("memory", "2026-07-28").client(*OFFICE, config=AUTOMATIC) as client:
        with anyio.fail_after(20):
            found = await ask(client, query)
            after = await ask(client, "create a calendar event", sessionId="another")

    assert found["totalAvailable"] == 61
    assert len(found["tools"]) <= 15
    assert found["tools"] or "No tool matches" in found["note"]
    assert after["tools"][0]["name"] == "calendar__create_event"
    if len(query) > 4_000:
        assert "first 4000 characters" in found["note"]


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_wrong_arguments_are_named(way: Way) -> None:
    wrong: list[dict[str, Any]] = [
        {"query": 7},
        {"query": None},
        {"query": ["a"]},
        {"sessionId": 7},
        {"sessionId": "s" * 10_240},
        {"forceRefresh": "yes"},
        {"forceRefresh": 1},
        {"search": "a"},
    ]
    async with way.client(*OFFICE, config=AUTOMATIC) as client:
        errors = [error_of(await client.call_tool("automatic_mcp", arguments)) for arguments in wrong]
        strange = await ask(client, "page", sessionId="\x00\u2028'; DROP TABLE seen_tools; --")
        again = await ask(client, "page", sessionId="\x00\u2028'; DROP TABLE seen_tools; --")

    assert {error["code"] for error in errors} == {"INVALID_PARAMS"}
    assert "256" in errors[4]["message"]
    assert len(json.dumps(errors[4])) < 5_000
    assert strange["tools"]
    assert again["tools"] == []


@pytest.mark.wire
async def test_half_a_character_is_refused(tmp_path: Any) -> None:
    def play() -> Any:
        with stdio_peer(*OFFICE, cwd=tmp_path, arguments=("--mode", "automatic")) as peer:
            return peer.request("tools/call", {"name": "automatic_mcp", "arguments": {"query": "\ud800 event"}})

    answer = await anyio.to_thread.run_sync(play)
    assert answer["error"]["code"] == -32600


def sizes() -> Script[tuple[int, int]]:
    ((count, longest),) = yield Statement("SELECT count(*), max(length(tools)) FROM seen_tools")
    return count, longest


async def test_thousands_of_sessions_of_one_caller_leave_the_others_alone() -> None:
    """The room is a fortieth for this test; what counts is that it is full more than once."""
    caller = Caller(id=CallerId("flood"), transport="http")
    async with office(AUTOMATIC) as app, Way("memory", "legacy").client_of(app) as client:
        app.store.seen._limit = 250
        mine = await ask(client, "create a calendar event", sessionId="mine")

        async def flood(count: int) -> None:
            for number in range(count):
                asked = {"query": "page", "sessionId": f"{number}"}
                await app.gateway.call(app.gateway.admit(caller=caller, name="automatic_mcp", arguments=asked))

        await flood(400)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            await flood(400)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        rows = await app.store.scripts.read(sizes)
        again = await ask(client, "create a calendar event", sessionId="mine")

    assert mine["tools"]
    assert again["tools"] == []
    assert rows[0] <= 250 < seen.SESSIONS_LIMIT
    assert rows[1] < 2_000
    assert after - before < 600_000


@pytest.mark.wire
async def test_a_hundred_searches_at_once_are_all_answered() -> None:
    answers: list[Any] = []
    async with office(AUTOMATIC) as app, Way("http", "2026-07-28").client_of(app) as client:

        async def search(number: int) -> None:
            arguments = {"query": "create a calendar event", "sessionId": str(number % 10)}
            answers.append(await client.call_tool("automatic_mcp", arguments))

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(search, number)

    assert len(answers) == 100
    assert not any(answer.is_error for answer in answers), text_of(answers[0])
