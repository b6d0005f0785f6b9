"""The overview of the console: figures by minute, and what needs attention."""

import time
from datetime import datetime
from pathlib import Path

import pytest

from tests.parts.console.conftest import OpenSite
from tests.parts.console.test_calls import call, desk
from tests.parts.console.test_contracts import bank, change_tool
from tests.parts.console.test_servers import SECRET, server
from tests.parts.console.test_sessions import ANN, BOB, callers  # noqa: F401 (a fixture)
from tests.waiting import until
from toolpost.parts.console.api.overview import list_minutes
from toolpost.parts.console.definitions import DefinitionHistory
from toolpost.providers.contract_watch import ContractWatch

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


async def test_figures_are_of_the_last_hour_and_of_the_callers_own_calls(
    site: OpenSite,
    callers: str,  # noqa: F811
    store_url: str,
) -> None:
    async with site(callers, desk, token=ANN, store=store_url) as opened:
        bob = {"Authorization": f"Bearer {BOB}"}
        await call(opened, "desk__add", {"a": 1, "b": 2})
        await call(opened, "desk__fail", {}, **bob)
        everything = await opened.get("/overview")
        own = (await opened.http.get("/api/console/overview", headers=bob)).json()

    assert [sum(everything["total"][name]) for name in ("calls", "failed")] == [2, 1]
    assert [everything["total"]["now"][name] for name in ("calls", "failed")] == [2, 1]
    assert everything["total"]["now"]["p50Ms"] > 0
    assert everything["total"]["before"] == {"calls": 0, "failed": 0, "p50Ms": None, "p95Ms": None, "p99Ms": None}
    assert len(everything["total"]["calls"]) == 60
    assert [(tool["tool"], tool["now"]["failed"]) for tool in everything["topTools"]] == [
        ("desk__fail", 1),
        ("desk__add", 0),
    ]
    assert [sum(own["total"][name]) for name in ("calls", "failed")] == [1, 1]
    assert [tool["tool"] for tool in own["topTools"]] == ["desk__fail"]
    assert (everything["inFlight"], own["inFlight"]) == (0, None)


async def test_what_needs_attention_says_what_to_do_and_no_secret(site: OpenSite, tmp_path: Path) -> None:
    text = f'contracts = "enforce"\n{bank(tmp_path)}\n{server("dead", "dies")}'
    async with site(text, log_in=True) as opened:
        # The console has seen the tool before it changes.
        history = DefinitionHistory(opened.app.store)
        await until(lambda: history.of_tool("bank__pay"))
        await change_tool(opened)
        found = (await opened.get("/overview"))["actionItems"]

    failed, changed = found
    assert failed["title"] == "The server dead is not available"
    assert "it said: small server here, token (redacted)" in failed["text"]
    assert failed["lines"] == []  # its only line is quoted already
    assert (failed["path"], failed["command"]) == ("/servers/dead", "toolpost doctor dead")
    assert changed["title"] == "bank__pay has changed and is quarantined"
    assert changed["command"] == "toolpost lock --accept bank__pay"
    assert [(item["kind"], bool(item["action"])) for item in found] == [("server", True), ("quarantine", True)]
    assert all(abs(datetime.fromisoformat(item["since"]).timestamp() - time.time()) < 60 for item in found)
    assert SECRET not in str(found)


async def test_a_degraded_server_is_shown_with_the_reason(site: OpenSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ContractWatch, "find_problem", lambda _self, _server: "it keeps renaming its tools")
    async with site(server("small", "fine")) as opened:
        found = (await opened.get("/overview"))["actionItems"]
        shown = await opened.get("/server", name="small")
        listed = (await opened.get("/servers"))["servers"]

    assert [(each["title"], each["text"]) for each in found] == [
        ("The server small is degraded", "it keeps renaming its tools")
    ]
    assert shown["degraded"] == listed[0]["degraded"] == "it keeps renaming its tools"


async def test_parts_say_what_waits_for_whom(
    site: OpenSite,
    callers: str,  # noqa: F811
) -> None:
    rule = '[approvals.rules.all]\ntools = ["desk__*"]\nvoters = ["ann"]\nvotes = 1\nwait = false\n'
    async with site(f"{rule}{callers}", desk, token=ANN) as opened:
        bob = {"Authorization": f"Bearer {BOB}"}
        await call(opened, "desk__add", {"a": 1, "b": 2}, **bob)
        waiting = (await opened.get("/overview"))["actionItems"]
        others = (await opened.http.get("/api/console/overview", headers=bob)).json()["actionItems"]
        await opened.http.post("/api/approvals/vote", json={"round_id": "1", "choice": "approve"})
        after = (await opened.get("/overview"))["actionItems"]

    assert [(item["title"], item["path"]) for item in waiting] == [("bob waits for your vote", "/approvals")]
    assert [(item["kind"], item["action"], bool(item["since"])) for item in waiting] == [("approval", "Vote", True)]
    assert (others, after) == ([], [])


def test_minutes_end_with_this_one() -> None:
    minutes = list_minutes(time.mktime((2026, 1, 1, 0, 5, 59, 0, 0, 0)) - time.timezone, 120)

    assert len(set(minutes)) == 120
    assert minutes[-1] == "2026-01-01T00:05"
    assert minutes == sorted(minutes)
