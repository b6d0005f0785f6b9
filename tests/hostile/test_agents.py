"""Agents that write more than anybody can read: their turn fails, says why, and nothing else does."""

import anyio
import pytest

from tests.hostile.attacks import attack
from tests.parts.agents.asking import ADA, asked
from tests.parts.agents.test_acp import conversing, with_agent
from tests.parts.agents.test_claude import with_claude
from toolpost.parts.agents import agent_process, turn
from toolpost.settings import Config
from toolpost.testing import conversations_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


@pytest.mark.parametrize("kind", ["acp", "claude"])
@attack(
    "agent",
    "writes a line that is longer than the limit",
    "the turn fails at once and says why, its session ends and is not asked a second time, and other threads go on",
)
async def test_an_over_long_line_is_a_failed_turn(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config: Config = with_agent() if kind == "acp" else with_claude()
    async with conversing(config) as (app, thread):
        other = (await conversations_of(app).create_thread(ADA)).id
        assert (await asked(app, thread, "say warm")).state == "done"
        assert (await asked(app, other, "count")).text == "1"
        monkeypatch.setattr(agent_process, "LINE_LIMIT", 10_000)
        fresh = (await conversations_of(app).create_thread(ADA)).id
        with anyio.fail_after(20):
            failed = await asked(app, fresh, "say " + "long " * 10_000)
            again = await asked(app, fresh, "count")
            beside = await asked(app, other, "count")

    assert failed.state == "failed"
    assert failed.error is not None
    assert failed.error["code"] == "UPSTREAM_UNAVAILABLE"
    assert "a line of more than 10,000 bytes" in failed.error["message"]
    assert again.text == "1", "a session of its own, after the one that ended"
    assert beside.text == "2"


@attack(
    "agent",
    "says more in small pieces than an answer may hold",
    "the turn fails and says which limit was passed; the next one has a new session",
)
async def test_an_over_long_answer_is_a_failed_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "TEXT_LIMIT", 1_000)
    async with conversing(with_agent()) as (app, thread):
        failed = await asked(app, thread, "stream 500")
        again = await asked(app, thread, "count")

    assert failed.error is not None
    assert (failed.state, failed.error["code"]) == ("failed", "HANDLER_ERROR")
    assert "more than 1,000 characters in one answer" in failed.error["message"]
    assert (again.state, again.text) == ("done", "1")


async def test_thoughts_and_results_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "OUTPUT_LIMIT", 1_000)
    async with conversing(with_agent()) as (app, thread):
        failed = await asked(app, thread, "think " + "hard " * 400)

    assert failed.error is not None
    assert "more than 1,000 characters in one turn" in failed.error["message"]
