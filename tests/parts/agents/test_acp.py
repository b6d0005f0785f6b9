"""Agents as real processes that speak the Agent Client Protocol, and all that can go wrong with them."""

import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest

from tests.hostile.attacks import attack
from tests.parts.agents.asking import ADA, asked, at_work, desk, limit
from tests.ways import IN_MEMORY
from toolpost.app import App, open_app, open_http
from toolpost.base.ids import ThreadId
from toolpost.contracts.errors import ToolpostError
from toolpost.parts.agents import SessionReady, TextChunk, TurnEvent
from toolpost.parts.agents.session_pool import PoolLimits
from toolpost.parts.agents.settings import ALL_AGENTS, AgentSettings, AllAgentsSettings
from toolpost.parts.agents.turn_events import ThoughtChunk, ToolUsed
from toolpost.settings import Config
from toolpost.testing import acp_agent_command, conversations_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


def with_agent(*options: str, sessions: int = 8, **settings: Any) -> Config:
    command, *args = acp_agent_command(*options)
    agent = AgentSettings(command=command, args=args, **settings)
    config = msgspec.structs.replace(IN_MEMORY, parts={"agents": {"script": agent}})
    return ALL_AGENTS.put(config, AllAgentsSettings(sessions=sessions))


@asynccontextmanager
async def conversing(config: Config) -> AsyncIterator[tuple[App, ThreadId]]:
    async with open_app(config, plugins=[desk], bundled=False) as app, open_http(app):
        thread = await conversations_of(app).create_thread(ADA)
        yield app, thread.id


async def has_gone(pid: int) -> bool:
    with anyio.move_on_after(30):
        while psutil.pid_exists(pid):
            await anyio.sleep(0.02)
    return not psutil.pid_exists(pid)


async def test_an_agent_answers_in_one_warm_session() -> None:
    heard: list[TurnEvent] = []
    async with conversing(with_agent()) as (app, thread):
        first = await asked(app, thread, "stream 3")
        thought = await asked(app, thread, "think about it", on_event=heard.append)
        third = await asked(app, thread, "count")
        pid = int((await asked(app, thread, "pid")).text)

    assert (first.state, first.text) == ("done", "word0 word1 word2 ")
    assert (thought.text, [e.text for e in heard if isinstance(e, ThoughtChunk)]) == ("thought", ["about it"])
    assert third.text == "3"
    assert await has_gone(pid)


@pytest.mark.parametrize("options", [(), ("--no-http",)], ids=["http", "stdio"])
async def test_the_gateway_is_the_agent_s_mcp_server(options: tuple[str, ...]) -> None:
    heard: list[TurnEvent] = []
    async with conversing(with_agent(*options)) as (app, thread):
        tools = await asked(app, thread, "tools")
        added = await asked(app, thread, 'call desk__add {"a": 2, "b": 3}', on_event=heard.append)
        who = await asked(app, thread, "call desk__whoami")
        meta = await asked(app, thread, "meta")

    assert tools.text.split() == ["desk__add", "desk__fail", "desk__whoami"]
    assert json.loads(added.text) == {"ok": True, "data": 5}
    assert json.loads(who.text)["data"] == {"caller": "local", "thread": thread, "trace": who.trace_id}
    assert json.loads(meta.text)["dev.toolpost/meta"] == {"threadId": thread}
    assert [(e.tool, e.state, e.arguments) for e in heard if isinstance(e, ToolUsed)] == [
        ("desk__add", "running", {"a": 2, "b": 3}),
        ("desk__add", "done", None),
    ]


@attack(
    "agent",
    "calls tools that its caller may not see",
    "it has its caller's view, within its own limits",
)
async def test_an_agent_sees_no_more_than_its_caller_and_its_own_limits() -> None:
    async with conversing(with_agent(tools=["!desk__fail"])) as (app, thread):
        tools = await asked(app, thread, "tools")
        refused = await asked(app, thread, "call desk__fail")

    assert tools.text.split() == ["desk__add", "desk__whoami"]
    assert "desk__fail" in refused.text
    assert "-32602" in refused.text


async def test_a_failure_is_in_the_log_once_with_thread_and_trace(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "toolpost"):
        async with conversing(with_agent()) as (app, thread):
            failed = await asked(app, thread, "call desk__fail")
            refused = await asked(app, thread, 'call desk__add {"a": 2}')

    told = [r.__dict__["fields"] for r in caplog.records if r.message in ("tool failed", "call failed")]
    assert [(fields["tool"], fields["plugin"], fields["code"]) for fields in told] == [
        ("desk__fail", "desk", "HANDLER_ERROR"),
        ("desk__add", "desk", "INVALID_PARAMS"),
    ]
    assert [(fields["thread"], fields["trace"]) for fields in told] == [
        (thread, failed.trace_id),
        (thread, refused.trace_id),
    ]


@pytest.mark.parametrize(
    ("permissions", "wish", "answer"),
    [
        ("read", "read", "allow_once"),
        ("read", "execute rm", "reject_once"),
        ("deny", "read", "reject_once"),
        ("allow", "execute rm", "allow_once"),
        ("deny", "other mcp__toolpost__desk__add", "allow_once"),
        ("deny", "execute mcp__toolpost__desk__add", "reject_once"),
        ("deny", "other mcp__toolpost__x; rm", "reject_once"),
    ],
)
async def test_what_an_agent_may_is_a_matter_of_policy(permissions: str, wish: str, answer: str) -> None:
    async with conversing(with_agent(permissions=permissions)) as (app, thread):
        assert (await asked(app, thread, f"may {wish}")).text == answer


async def test_a_model_is_chosen_or_refused_by_name() -> None:
    async with conversing(with_agent("--models", "small,large", model="large")) as (app, thread):
        chosen = await asked(app, thread, "model")
        refused = await asked(app, thread, "model", model="huge")

    assert chosen.text == "large"
    assert refused.error is not None
    assert (refused.state, refused.error["code"], refused.error["hint"]) == (
        "failed",
        "INVALID_REQUEST",
        "known: small, large",
    )


@pytest.mark.parametrize(("option", "how"), [((), "loaded"), (("--resume",), "resumed")], ids=["load", "resume"])
async def test_an_agent_goes_on_by_its_own_session(tmp_path: Path, option: tuple[str, ...], how: str) -> None:
    async with conversing(with_agent("--sessions", str(tmp_path), *option)) as (app, thread):
        first = await asked(app, thread, "session")
        conversations_of(app).pool.evict_thread(thread)
        again = await asked(app, thread, "session")
        echo = await asked(app, thread, "echo")
        conversations_of(app).pool.evict_thread(thread)
        for known in tmp_path.iterdir():
            known.unlink()
        anew = await asked(app, thread, "echo")

    session = first.text.split()[0]
    assert again.text == f"{session} {how}"
    assert echo.text == "echo"
    assert '"text":"session"' in anew.text


async def test_the_history_is_told_after_a_crash_and_not_again() -> None:
    async with conversing(with_agent()) as (app, thread):
        await asked(app, thread, "say my name is Ada")
        crashed = await asked(app, thread, "crash")
        told = await asked(app, thread, "echo")
        not_told = await asked(app, thread, "echo")
        messages = await conversations_of(app).read_messages(ADA, thread)

    assert crashed.error is not None
    assert (crashed.state, crashed.text, crashed.error["code"]) == ("failed", "before ", "UPSTREAM_UNAVAILABLE")
    assert "out of luck" in crashed.error["stderr"]
    assert "my name is Ada" in told.text
    assert not_told.text == "echo"
    assert [m.details for m in messages if m.text == "before "] == [{"state": "failed"}]


async def test_an_agent_that_hangs_is_stopped_at_its_time_limit() -> None:
    async with conversing(with_agent()) as (app, thread):
        await asked(app, thread, "say ready")
        late = await asked(app, thread, "hang", timeout_s=1.5)
        after = await asked(app, thread, "count")

    assert late.error is not None
    assert (late.state, late.error["code"], late.error["timeoutMs"]) == ("failed", "TOOL_TIMEOUT", 1500)
    assert after.text == "3"


async def test_a_cancelled_turn_ends_at_once_and_the_session_stays_warm() -> None:
    async with conversing(with_agent()) as (app, thread):
        run = await at_work(app, thread, "stream 1000 100", until=TextChunk)
        with anyio.fail_after(30):  # all of it would take 100 s
            assert await conversations_of(app).cancel(ADA, thread) == [run.info.turn]
            await run.done.wait()
        after = await asked(app, thread, "count")

    assert run.ended is not None
    assert run.ended.error is not None
    assert (run.ended.state, run.ended.error["code"]) == ("cancelled", "CANCELLED")
    assert run.ended.text.startswith("word0 ")
    assert after.text == "2"


async def test_an_agent_that_ignores_cancel_is_ended_and_its_old_answer_never_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit(monkeypatch, cancel_s=0.3)
    async with conversing(with_agent()) as (app, thread):
        pid = int((await asked(app, thread, "pid")).text)
        run = await at_work(app, thread, "ignore 5000 the old answer")
        await conversations_of(app).cancel(ADA, thread)
        await run.done.wait()
        after = await asked(app, thread, "say the new answer")
        await anyio.sleep(0.6)  # what must not come would be here by now
        later = await asked(app, thread, "count")

    assert run.ended is not None
    assert run.ended.state == "cancelled"
    assert (after.text, later.text) == ("the new answer", "2")
    assert await has_gone(pid)


async def test_garbage_is_passed_over_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    async with conversing(with_agent()) as (app, thread):
        ended = await asked(app, thread, "garbage")
        after = await asked(app, thread, "count")

    assert (ended.state, ended.text) == ("done", "still here")
    assert after.text == "2"
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []


@attack(
    "agent",
    "prints garbage without end",
    "it is ended, and the turn fails with a reason",
)
async def test_an_agent_that_prints_nothing_but_garbage_is_ended() -> None:
    async with conversing(with_agent()) as (app, thread):
        with anyio.fail_after(20):
            ended = await asked(app, thread, "flood")

    assert ended.error is not None
    assert (ended.state, ended.error["code"]) == ("failed", "UPSTREAM_UNAVAILABLE")


@pytest.mark.parametrize("prompt", ["fail", "odd"])
async def test_an_answer_that_is_an_error_is_told(prompt: str) -> None:
    async with conversing(with_agent()) as (app, thread):
        ended = await asked(app, thread, prompt)
        after = await asked(app, thread, "say fine")

    assert ended.error is not None
    assert (ended.state, ended.error["code"]) == ("failed", "HANDLER_ERROR")
    assert after.text == "fine"


@attack(
    "agent",
    "starts daemons",
    "they end with its session",
)
async def test_daemons_of_an_agent_end_with_its_session() -> None:
    async with conversing(with_agent()) as (app, thread):
        daemon = int((await asked(app, thread, "fork")).text)
        assert psutil.pid_exists(daemon)
        conversations_of(app).pool.evict_thread(thread)

        assert await has_gone(daemon)


@pytest.mark.parametrize(
    ("option", "open_s", "code", "words"),
    [("--exit", 20.0, "UPSTREAM_UNAVAILABLE", "cannot start like this"), ("--hang", 0.3, "TOOL_TIMEOUT", None)],
)
async def test_an_agent_that_does_not_start_is_told_with_its_last_words(
    option: str, open_s: float, code: str, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, pool=PoolLimits(open_s=open_s))
    async with conversing(with_agent(option)) as (app, thread):
        ended = await asked(app, thread, "say hello")
        with pytest.raises(ToolpostError) as refused:
            await conversations_of(app).prewarm(ADA, thread)
        sessions = conversations_of(app).pool.sessions
        messages = await conversations_of(app).read_messages(ADA, thread)

    assert ended.error is not None
    assert (ended.state, ended.error["code"], refused.value.code) == ("failed", code, code)
    assert ended.error.get("stderr") == words
    assert words is None or ended.error["message"] == "The agent `script` is gone: it ended with exit code 7."
    assert sessions == []
    assert [m.text for m in messages] == ["say hello"]


async def test_a_command_that_is_not_there_is_told_with_what_to_do() -> None:
    config = msgspec.structs.replace(IN_MEMORY, parts={"agents": {"none": AgentSettings(command="no-such-agent")}})
    async with conversing(config) as (app, thread):
        ended = await asked(app, thread, "say hello")

    assert ended.error is not None
    assert ended.error["code"] == "CAPABILITY_MISSING"
    assert "no-such-agent" in ended.error["message"]


async def test_a_session_that_was_killed_between_turns_is_replaced_unnoticed() -> None:
    heard: list[TurnEvent] = []
    async with conversing(with_agent()) as (app, thread):
        pid = int((await asked(app, thread, "pid")).text)
        os.kill(pid, 9)
        ended = await asked(app, thread, "count", on_event=heard.append)

    assert (ended.state, ended.text) == ("done", "1")
    assert [e.replayed for e in heard if isinstance(e, SessionReady)][-1] == 2


async def test_a_prewarmed_session_is_the_one_that_answers() -> None:
    heard: list[TurnEvent] = []
    async with conversing(with_agent("--slow", "0.3")) as (app, thread):
        await conversations_of(app).prewarm(ADA, thread)
        (warm,) = conversations_of(app).pool.sessions
        ended = await asked(app, thread, "count", on_event=heard.append)
        found = conversations_of(app).pool.metrics.agent_turns

        assert conversations_of(app).pool.sessions == [warm]
    assert ended.text == "1"
    assert [e.is_warm for e in heard if isinstance(e, SessionReady)] == [True]
    assert (found.value("warm"), found.value("cold"), found.value("opening")) == (1, 0, 0)


async def test_an_agent_made_with_the_protocol_s_own_library_answers(tmp_path: Path) -> None:
    agent = AgentSettings(command=sys.executable, args=[str(Path(__file__).with_name("library_agent.py"))])
    config = msgspec.structs.replace(IN_MEMORY, parts={"agents": {"library": agent}})
    heard: list[TurnEvent] = []
    async with conversing(config) as (app, thread):
        ended = await asked(app, thread, "hello", on_event=heard.append)

    assert (ended.state, ended.text) == ("done", "you said hello")
    assert [e.text for e in heard if isinstance(e, TextChunk)] == ["you ", "said ", "hello"]
