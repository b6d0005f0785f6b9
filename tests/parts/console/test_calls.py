"""The calls of the console: filters, pages, live events, and whose calls a caller sees."""

import json
from typing import Any

import anyio
import httpx2
import pytest

from tests.parts.console.conftest import API, OpenSite, Site
from tests.parts.console.test_sessions import ANN, BOB, callers  # noqa: F401 (a fixture)
from tests.ways import ENVELOPE, STATELESS
from toolpost import Plugin

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

desk = Plugin("desk", version="1.0.0")


@desk.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@desk.tool()
def fail() -> int:
    """Fail."""
    raise ValueError("no")


async def call(site: Site, tool: str, arguments: dict[str, Any], **headers: str) -> None:
    sent = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": STATELESS,
        "mcp-method": "tools/call",
        "mcp-name": tool,
        **headers,
    }
    params = {"name": tool, "arguments": arguments, "_meta": ENVELOPE}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = await site.http.post("/mcp", json=body, headers=sent)
    assert answer.status_code == 200, answer.text


async def test_calls_are_found_by_what_they_are(site: OpenSite, store_url: str) -> None:
    async with site("", desk, store=store_url, log_in=True) as opened:
        for number in range(5):
            await call(opened, "desk__add", {"a": number, "b": 1})
        await call(opened, "desk__fail", {})
        await call(opened, "desk__add", {"a": "x"})
        everything = await opened.get("/calls")
        by_tool = await opened.get("/calls", tool="*__fail")
        by_code = await opened.get("/calls", code="INVALID_PARAMS")
        refused = await opened.get("/calls", outcome="refused")
        nobody = await opened.get("/calls", caller="nobody")
        later = await opened.get("/calls", since="2999-01-01T00:00:00.000Z")
        first = await opened.get("/calls", limit="4")
        second = await opened.get("/calls", limit="4", before=str(first["next"]))
        one = await opened.get("/call", id=everything["calls"][0]["call_id"])
        bad = [
            await opened.http.get(f"{API}/calls", params=query)
            for query in (
                {"since": "tomorrow"},
                {"limit": "-1"},
                {"outcome": "fine"},
                {"tool": "a\0b"},
                {"before": "²"},
            )
        ]
        missing = await opened.http.get(f"{API}/call", params={"id": "c-nothing"})
        verdict = await opened.change("/calls/verify")

    assert [entry["seq"] for entry in everything["calls"]] == [7, 6, 5, 4, 3, 2, 1]
    assert [entry["tool"] for entry in by_tool["calls"]] == ["desk__fail"]
    assert [entry["seq"] for entry in by_code["calls"]] == [7]
    assert refused == by_code
    assert (nobody["calls"], later["calls"]) == ([], [])
    assert [entry["seq"] for entry in (*first["calls"], *second["calls"])] == [7, 6, 5, 4, 3, 2, 1]
    assert second["next"] is None
    assert (one["seq"], [entry["seq"] for entry in one["trace"]], one["content"]) == (7, [7], None)
    assert one["previous"] == everything["calls"][1]["hash"]
    assert [answer.status_code for answer in bad] == [400] * 5
    assert missing.status_code == 404
    assert (verdict["isIntact"], verdict["checked"]) == (True, 7)


async def read_calls(site: Site, ready: anyio.Event, count: int, token: str) -> list[str]:
    """Follow the events until there are so many calls; returns their tools and callers."""
    found: list[str] = []
    headers = {"Authorization": f"Bearer {token}"}
    async with site.http.stream("GET", f"{API}/events", params={"calls": "1"}, headers=headers) as answer:
        async for line in answer.aiter_lines():
            event = json.loads(line[6:]) if line.startswith("data: ") else {}
            if event.get("kind") == "servers":
                ready.set()
            found += [f"{entry['tool']} {entry['caller']}" for entry in event.get("calls", ())]
            if len(found) >= count:
                return found
    return found


async def test_contents_that_were_kept_are_shown_to_who_has_the_secret(site: OpenSite) -> None:
    async with site("[audit]\nsample = 1.0\n", desk) as opened:
        await call(opened, "desk__add", {"a": 20, "b": 22})
        (one,) = (await opened.get("/calls"))["calls"]
        without = await opened.get("/call", id=one["call_id"])
        await opened.log_in()
        shown = await opened.get("/call", id=one["call_id"])

    assert without["content"] is None
    assert "20" in str(shown["content"]["arguments"])


async def test_a_caller_sees_its_own_calls_and_an_administrator_all(
    site: OpenSite,
    callers: str,  # noqa: F811
    store_url: str,
) -> None:
    heard: dict[str, list[str]] = {}
    async with site(callers, desk, token=ANN, store=store_url) as opened, anyio.create_task_group() as tasks:

        async def hear(token: str, count: int, ready: anyio.Event) -> None:
            heard[token] = await read_calls(opened, ready, count, token)

        for token, count in ((ANN, 3), (BOB, 1)):
            ready = anyio.Event()
            tasks.start_soon(hear, token, count, ready)
            await ready.wait()
        bob = {"Authorization": f"Bearer {BOB}"}
        await call(opened, "desk__add", {"a": 1, "b": 2})
        await call(opened, "desk__fail", {}, **bob)
        await call(opened, "desk__add", {"a": 3, "b": 4})

        async def get(path: str, **query: str) -> httpx2.Response:
            return await opened.http.get(f"{API}{path}", params=query, headers=bob)

        all_calls = await opened.get("/calls")
        others = all_calls["calls"][0]["call_id"]
        own = (await get("/calls")).json()
        asked = [(await get("/calls", caller=name)).json()["calls"] for name in ("ann", "nobody", "bob")]
        hidden = await get("/call", id=others)
        verified = await opened.http.post(f"{API}/calls/verify", json={}, headers=bob)

    assert [entry["caller"] for entry in all_calls["calls"]] == ["ann", "bob", "ann"]
    assert [entry["caller"] for entry in own["calls"]] == ["bob"]
    assert [len(found) for found in asked] == [0, 0, 1]
    assert (hidden.status_code, verified.status_code) == (404, 403)
    assert heard == {ANN: ["desk__add ann", "desk__fail bob", "desk__add ann"], BOB: ["desk__fail bob"]}
