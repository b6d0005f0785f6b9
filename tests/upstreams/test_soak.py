"""Thousands of mixed calls with crashes among them: one terminal answer each, and nothing left behind."""

import os
import random
from collections import Counter

import anyio
import psutil
import pytest
from mcp import Client, MCPError

from tests.upstreams.behind import gateway, hostile, report, text_of, until
from tests.upstreams.servers.http_server import HttpServer, serving
from toolpost.store import AuditFilter
from toolpost.testing import error_of
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks"), pytest.mark.timeout(1800)]

CALLS = 20_000 if os.environ.get("TOOLPOST_LONG_TESTS") else 2_000
AT_ONCE = 16

ON_STDIO = {"echo": 80, "refuse": 5, "lie": 5, "garbage": 3, "twice": 3, "unknown_id": 3, "crash": 1}
OVER_HTTP = {"echo": 80, "refuse": 10, "cut": 3, "cut_events": 3, "lie": 4}

KNOWN = {
    "crash": {"UPSTREAM_UNAVAILABLE"},
    "refuse": {"-31001"},
    "cut": {"UPSTREAM_UNAVAILABLE"},
    "cut_events": {"UPSTREAM_UNAVAILABLE"},
}


async def outcome_of(client: Client, server: str, tool: str, number: int) -> str:
    """Make a call, and say how it ended; an answer that is somebody else's fails the test."""
    try:
        answer = await client.call_tool(f"{server}__{tool}", {"text": str(number)})
    except MCPError as refusal:
        return str(refusal.code)
    if answer.is_error:
        return str(error_of(answer)["code"])
    if tool == "echo":
        assert text_of(answer) == str(number)
    return "ok"


def is_expected(server: str, tool: str, outcome: str) -> bool:
    if tool == "lie":
        return outcome in ("OUTPUT_VALIDATION_FAILED", "UPSTREAM_UNAVAILABLE")
    # A crash takes the calls that the same server was carrying along.
    spared = {"UPSTREAM_UNAVAILABLE"} if server != "web" else set()
    return outcome in KNOWN.get(tool, {"ok"}) | spared


async def test_every_call_gets_one_answer() -> None:
    dice = random.Random(7)
    outcomes: Counter[str] = Counter()
    odd: list[tuple[str, str, str]] = []
    numbers = iter(range(CALLS))
    async with serving(HttpServer(version="2025-11-25")) as url:
        specs = [hostile("one"), hostile("two", version="2026-07-28"), ServerSpec(name="web", url=url)]
        async with gateway(*specs) as (app, client):

            async def work() -> None:
                for number in numbers:
                    server = dice.choice(("one", "two", "web"))
                    mix = OVER_HTTP if server == "web" else ON_STDIO
                    tool = dice.choices(list(mix), list(mix.values()))[0]
                    outcome = await outcome_of(client, server, tool, number)
                    outcomes[outcome] += 1
                    if not is_expected(server, tool, outcome):
                        odd.append((server, tool, outcome))

            memory_before = psutil.Process().memory_info().rss
            async with anyio.create_task_group() as tasks:
                for _ in range(AT_ONCE):
                    tasks.start_soon(work)
            memory_after = psutil.Process().memory_info().rss
            await until(lambda: all(report(app, name).in_flight == 0 for name in ("one", "two", "web")))
            restarts = report(app, "one").restarts
            audited = await app.store.audit.entries(AuditFilter(), limit=CALLS + 100)

    assert odd == []
    assert outcomes.total() == CALLS == len(audited)
    assert outcomes["ok"] > CALLS * 0.6
    assert restarts >= CALLS // 1_000
    assert memory_after - memory_before < 150 * 1024 * 1024
