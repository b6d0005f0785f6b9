"""Claude through its SDK, with a program that speaks as Claude Code does."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.parts.agents.asking import ADA, asked, at_work, desk
from tests.ways import IN_MEMORY
from toolpost.app import App, open_app, open_http
from toolpost.base.ids import ThreadId
from toolpost.parts.agents import TextChunk, TurnEvent
from toolpost.parts.agents.agent import AgentGone, AgentSpec, SessionOptions
from toolpost.parts.agents.claude_agent import ClaudeAgent
from toolpost.parts.agents.settings import AgentSettings
from toolpost.parts.agents.turn_events import ToolUsed
from toolpost.settings import Config
from toolpost.store.scripts import Script, Statement
from toolpost.testing import conversations_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

PROGRAM = Path(__file__).with_name("fake_claude.py")


def with_claude(**settings: Any) -> Config:
    agent = AgentSettings(kind="claude", command=sys.executable, args=["-S", "-E", str(PROGRAM)], **settings)
    return msgspec.structs.replace(IN_MEMORY, parts={"agents": {"claude": agent}})


@asynccontextmanager
async def conversing(config: Config) -> AsyncIterator[tuple[App, ThreadId]]:
    async with open_app(config, plugins=[desk], bundled=False) as app, open_http(app):
        thread = await conversations_of(app).create_thread(ADA)
        yield app, thread.id


async def test_it_answers_in_pieces_and_in_one_warm_session() -> None:
    heard: list[TurnEvent] = []
    async with conversing(with_claude(model="opus")) as (app, thread):
        first = await asked(app, thread, "say good morning", on_event=heard.append)
        second = await asked(app, thread, "count")
        third = await asked(app, thread, "model")

    assert (first.state, first.text, first.usage) == ("done", "good morning", {"output_tokens": 3})
    assert [event.text for event in heard if isinstance(event, TextChunk)] == ["good m", "orning"]
    assert second.text == "2"
    assert "--model=opus" in third.text
    assert "Bearer" not in third.text


async def test_it_uses_the_gateway_s_tools() -> None:
    heard: list[TurnEvent] = []
    async with conversing(with_claude()) as (app, thread):
        ended = await asked(app, thread, "call desk__whoami", on_event=heard.append)

    assert f'"caller":"local","thread":"{thread}"' in ended.text
    assert [(event.tool, event.state) for event in heard if isinstance(event, ToolUsed)] == [
        ("desk__whoami", "running"),
        ("desk__whoami", "done"),
    ]


async def test_a_session_that_is_closed_while_it_answers_is_gone(tmp_path: Path) -> None:
    spec = AgentSpec(name="claude", kind="claude", command=(sys.executable, "-S", "-E", str(PROGRAM)), cwd=tmp_path)
    order = SessionOptions(
        thread=None,
        model=None,
        cwd=tmp_path,
        permissions="deny",
        gateway=None,
        resume=None,
        on_gone=lambda _: None,
    )
    async with ClaudeAgent(spec).open(order) as session:
        answer = session.prompt("say good morning")
        await anext(answer)

    with pytest.raises(AgentGone):
        async for _ in answer:
            pass


@pytest.mark.parametrize(
    ("permissions", "tool", "answer"),
    [
        ("read", "Grep", "yes"),
        ("read", "Bash", "no"),
        ("deny", "Grep", "no"),
        ("allow", "Bash", "yes"),
        ("deny", "mcp__toolpost__time__now", "yes"),
    ],
)
async def test_what_it_may_is_a_matter_of_policy(permissions: str, tool: str, answer: str) -> None:
    async with conversing(with_claude(permissions=permissions)) as (app, thread):
        assert (await asked(app, thread, f"may {tool}")).text == answer


async def test_a_cancelled_turn_ends_and_the_session_goes_on() -> None:
    async with conversing(with_claude()) as (app, thread):
        run = await at_work(app, thread, "hang")
        await conversations_of(app).cancel(ADA, thread)
        await run.done.wait()
        after = await asked(app, thread, "count")

    assert run.ended is not None
    assert run.ended.state == "cancelled"
    assert after.text == "2"


async def test_a_crash_is_told_and_the_next_message_is_answered() -> None:
    async with conversing(with_claude()) as (app, thread):
        broken = await asked(app, thread, "crash")
        after = await asked(app, thread, "echo")

    assert broken.error is not None
    assert (broken.state, broken.error["code"], broken.text) == ("failed", "UPSTREAM_UNAVAILABLE", "before ")
    assert "out of luck" in broken.error["stderr"]
    assert '"text":"crash"' in after.text


async def test_a_failure_is_told_in_its_own_words() -> None:
    async with conversing(with_claude()) as (app, thread):
        failed = await asked(app, thread, "fail")

    assert failed.error is not None
    assert (failed.error["code"], "no credit" in failed.error["message"]) == ("HANDLER_ERROR", True)


async def test_it_goes_on_where_it_stopped_and_opens_anew_what_is_forgotten() -> None:
    async with conversing(with_claude()) as (app, thread):
        await asked(app, thread, "say one")
        conversations_of(app).pool.evict_thread(thread)
        resumed = await asked(app, thread, "session")
        conversations_of(app).pool.evict_thread(thread)
        found = await conversations_of(app).find_thread(ADA, thread)
        assert found.session is not None
        await forget(app, thread)
        anew = await asked(app, thread, "echo")

    assert resumed.text.endswith("resumed")
    assert '"text":"say one"' in anew.text


async def forget(app: App, thread: ThreadId) -> None:
    """Have the thread remember a session that the program has not."""

    def script() -> Script[None]:
        yield Statement("UPDATE threads SET session = 'claude-forgotten' WHERE id = ?1", (thread,))

    await app.store.scripts.run(script)
