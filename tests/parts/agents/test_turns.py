"""Turns: kept in order, told in order, stopped when asked, and told what came before exactly when that is needed."""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import msgspec
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.parts.agents.asking import ADA, BOB, at_work, desk, limit
from tests.waiting import until
from tests.ways import IN_MEMORY
from toolpost import Plugin
from toolpost.app import App, open_http
from toolpost.base.caller import Principal
from toolpost.base.ids import ThreadId
from toolpost.contracts.errors import CapabilityMissing, InvalidRequest, NotFound, QueueOverloaded
from toolpost.parts.agents import Conversations, InvokeOptions, TextChunk, ToolCall, TurnEnded, TurnEvent, TurnInfo
from toolpost.parts.agents.agent import AgentGone
from toolpost.parts.agents.history import HistoryLimits
from toolpost.parts.agents.ids import AgentSessionId
from toolpost.parts.agents.settings import ALL_AGENTS, AllAgentsSettings
from toolpost.parts.agents.turn_events import AgentEnd, AgentEvent, ToolUsed
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings
from toolpost.testing import ScriptedAgent, ScriptedSession, conversations_of, open_test_app

pytestmark = pytest.mark.anyio


def configured(**settings: Any) -> Config:
    return ALL_AGENTS.put(IN_MEMORY, AllAgentsSettings(**settings))


@asynccontextmanager
async def conversing(
    agent: ScriptedAgent, *plugins: Plugin, config: Config = IN_MEMORY, **agents: ScriptedAgent
) -> AsyncIterator[tuple[App, ThreadId]]:
    async with open_test_app(*plugins, config=config, agents={"main": agent, **agents}) as app:
        thread = await conversations_of(app).create_thread(ADA)
        yield app, thread.id


async def said(app: App, thread: ThreadId, text: str, **options: Any) -> TurnEnded:
    return await conversations_of(app).handle_message(ADA, thread, text, InvokeOptions(**options))


async def test_a_message_is_answered_and_both_are_kept() -> None:
    heard: list[TurnEvent] = []
    async with conversing(ScriptedAgent()) as (app, thread):
        ended = await said(app, thread, "good morning", on_event=heard.append)
        messages = await conversations_of(app).read_messages(ADA, thread)

    assert (ended.state, ended.text, ended.seq) == ("done", "good morning", 2)
    assert [(m.seq, m.role, m.text) for m in messages] == [
        (1, "user", "good morning"),
        (2, "assistant", "good morning"),
    ]
    assert [type(event).__name__ for event in heard] == ["TurnStarted", "SessionReady", "TextChunk", "TurnEnded"]


async def test_what_an_agent_used_is_kept_with_its_answer_within_bounds() -> None:
    async def use(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        for number in range(60):
            yield ToolUsed(id=f"c{number}", tool="dig", state="running", arguments={"deep": number})
            yield ToolUsed(id=f"c{number}", tool="dig", state="done", result="x" * 5_000)

    async with conversing(ScriptedAgent(use)) as (app, thread):
        await said(app, thread, "dig")
        _, answer = await conversations_of(app).read_messages(ADA, thread)

    assert answer.details is not None
    tools = answer.details["tools"]
    assert len(tools) == 50
    assert tools[7] == {"tool": "dig", "state": "done", "arguments": {"deep": 7}, "result": "x" * 2_000 + "…"}


async def test_history_is_told_to_a_cold_session_and_to_no_other() -> None:
    agent = ScriptedAgent()
    async with conversing(agent) as (app, thread):
        await said(app, thread, "one")
        await said(app, thread, "two")
        conversations_of(app).pool.evict_thread(thread)
        await said(app, thread, "three")
        await said(app, thread, "four")

    first, second = agent.sessions
    assert first.prompts == ["one", "two"]
    assert second.prompts[0].endswith("three")
    assert [line in second.prompts[0] for line in ('"text":"one"', '"text":"two"')] == [True, True]
    assert second.prompts[1] == "four"


async def test_messages_of_a_thread_are_answered_in_the_order_in_which_they_came() -> None:
    async def slow_at_first(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        await anyio.sleep(0.05 if prompt == "0" else 0)
        yield TextChunk(text=prompt)

    agent = ScriptedAgent(slow_at_first)
    async with conversing(agent) as (app, thread):
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(said, app, thread, str(number))
                await anyio.lowlevel.checkpoint()
        messages = await conversations_of(app).read_messages(ADA, thread)

    assert [m.text for m in messages if m.role == "user"] == ["0", "1", "2", "3", "4"]
    assert [m.text for m in messages if m.role == "assistant"] == ["0", "1", "2", "3", "4"]
    assert len(agent.sessions) == 1


async def test_a_session_of_another_model_is_told_what_was_said_meanwhile() -> None:
    agent = ScriptedAgent()
    async with conversing(agent) as (app, thread):
        await said(app, thread, "one", model="a")
        await said(app, thread, "two", model="b")
        await said(app, thread, "three", model="a")

    assert [session.session_options.model for session in agent.sessions] == ["a", "b", "a"]
    assert '"text":"one"' in agent.sessions[1].prompts[0]
    assert '"text":"two"' in agent.sessions[2].prompts[0]


async def test_a_session_is_resumed_by_the_agent_s_own_id_and_told_nothing_twice() -> None:
    agent = ScriptedAgent(can_resume=True)
    async with conversing(agent) as (app, thread):
        await said(app, thread, "one")
        conversations_of(app).pool.evict_thread(thread)
        await said(app, thread, "two")

    assert agent.sessions[1].is_resumed
    assert agent.sessions[1].prompts == ["two"]


async def test_history_survives_a_restart(tmp_path: Path) -> None:
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=f"sqlite:{tmp_path}/t.db"))
    first, second = ScriptedAgent(), ScriptedAgent()
    async with conversing(first, config=config) as (app, thread):
        await said(app, thread, "one")
    async with open_test_app(config=config, agents={"main": second}) as app:
        await said(app, thread, "two")

    assert '"text":"one"' in second.prompts[0]
    assert second.prompts[0].endswith("two")


async def test_history_is_bounded_and_the_rest_summed_up_by_a_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    scribe = Plugin("scribe")
    given: list[int] = []

    @scribe.hook
    async def toolpost_summarize(messages: Any) -> str:
        given.append(len(messages))
        return "they counted"

    agent = ScriptedAgent()
    limit(monkeypatch, history=HistoryLimits(messages=4))
    async with conversing(agent, scribe) as (app, thread):
        for number in range(5):
            await said(app, thread, f"number {number}")
        conversations_of(app).pool.evict_thread(thread)
        await said(app, thread, "go on")

    told = agent.sessions[1].prompts[0]
    assert [f"number {n}" in told for n in range(5)] == [False, False, False, True, True]
    assert "they counted" in told
    assert "6 older messages" in told
    assert given == [6]


async def test_a_long_message_is_cut_to_the_budget() -> None:
    agent = ScriptedAgent()
    async with conversing(agent, config=configured(history_tokens=100)) as (app, thread):
        await said(app, thread, "x" * 10_000)
        conversations_of(app).pool.evict_thread(thread)
        await said(app, thread, "short")

    assert len(agent.sessions[1].prompts[0]) < 1_000


async def test_a_session_that_closes_under_us_is_replaced_once() -> None:
    async def fragile(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        if len(session.prompts) == 2:
            raise AgentGone("closed under us")
        yield TextChunk(text=f"{session.number}")

    agent = ScriptedAgent(fragile)
    async with conversing(agent) as (app, thread):
        first = await said(app, thread, "one")
        second = await said(app, thread, "two")

    assert (first.text, second.state, second.text) == ("1", "done", "2")
    assert '"text":"one"' in agent.sessions[1].prompts[0]


async def test_a_fresh_session_that_closes_is_not_tried_again() -> None:
    async def broken(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        if prompt:
            raise AgentGone("closed at once")
        yield TextChunk(text="")

    agent = ScriptedAgent(broken)
    async with conversing(agent) as (app, thread):
        ended = await said(app, thread, "one")

    assert ended.error is not None
    assert (ended.state, ended.error["code"], len(agent.sessions)) == ("failed", "UPSTREAM_UNAVAILABLE", 1)


async def test_an_agent_that_ends_twice_or_never_is_at_fault() -> None:
    async def twice(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        yield AgentEnd()
        if prompt.endswith("twice"):
            yield AgentEnd()

    agent = ScriptedAgent(twice)
    async with conversing(agent) as (app, thread):
        ended = await said(app, thread, "twice")
        after = await said(app, thread, "once")

    assert ended.error is not None
    assert (ended.state, ended.error["code"]) == ("failed", "HANDLER_ERROR")
    assert after.state == "done"
    assert len(agent.sessions) == 2


async def test_messages_that_wait_can_be_cancelled_one_by_one() -> None:
    has_begun = anyio.Event()

    async def patient(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        if prompt.endswith("wait"):
            has_begun.set()
            await session.cancelled.wait()
        yield TextChunk(text=prompt[-4:])

    async with conversing(ScriptedAgent(patient)) as (app, thread):
        first = await conversations_of(app).start_message(ADA, thread, "wait")
        second = await conversations_of(app).start_message(ADA, thread, "more")
        third = await conversations_of(app).start_message(ADA, thread, "last")
        await has_begun.wait()
        await conversations_of(app).cancel(ADA, thread, second.info.turn)
        await conversations_of(app).cancel(ADA, thread, first.info.turn)
        await third.done.wait()
        await second.done.wait()
        messages = await conversations_of(app).read_messages(ADA, thread)

    states = [run.ended.state for run in (first, second, third) if run.ended is not None]
    assert states == ["cancelled", "cancelled", "done"]
    assert [m.text for m in messages if m.role == "user"] == ["wait", "more", "last"]


async def test_a_thread_takes_no_more_messages_than_it_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    async def patient(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        await session.cancelled.wait()
        yield TextChunk(text="")

    limit(monkeypatch, waiting=2)
    async with conversing(ScriptedAgent(patient)) as (app, thread):
        for _ in range(3):
            await conversations_of(app).start_message(ADA, thread, "wait")
        with pytest.raises(QueueOverloaded):
            await conversations_of(app).start_message(ADA, thread, "one too many")


async def test_a_message_that_never_got_to_an_agent_says_so() -> None:
    async def patient(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        yield TextChunk(text="so far")
        await session.cancelled.wait()

    async with conversing(ScriptedAgent(patient), config=configured(sessions=1)) as (app, thread):
        other = (await conversations_of(app).create_thread(ADA)).id
        at_it = await at_work(app, thread, "hello")
        waited = await said(app, other, "is anybody there?", timeout_s=0.2)
        at_it.stop("timeout", "it took too long")
        await at_it.hooks_done.wait()

    assert waited.error is not None
    assert (waited.error["code"], waited.error["message"]) == (
        "TOOL_TIMEOUT",
        "No agent could be prompted within 0.2 s.",
    )
    assert "agents.sessions" in waited.error["hint"]
    assert at_it.ended is not None
    assert at_it.ended.error is not None
    assert at_it.ended.error["message"] == "The agent did not end its answer within 600 s."


async def test_whoever_is_cancelled_while_waiting_cancels_the_turn() -> None:
    has_spoken = anyio.Event()

    async def patient(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        yield TextChunk(text="so far")
        has_spoken.set()
        await session.cancelled.wait()

    async with conversing(ScriptedAgent(patient)) as (app, thread):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(said, app, thread, "hello")
            await has_spoken.wait()
            tasks.cancel_scope.cancel()
        await until(lambda: not conversations_of(app).runs)
        (turn,) = await conversations_of(app).list_turns(ADA, thread)
        messages = await conversations_of(app).read_messages(ADA, thread)

    assert turn.state == "cancelled"
    assert [m.text for m in messages] == ["hello", "so far"]


async def test_a_server_that_ends_interrupts_its_turns_and_keeps_what_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_spoken = anyio.Event()

    async def deaf(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        yield TextChunk(text="so far")
        has_spoken.set()
        await anyio.sleep_forever()

    limit(monkeypatch, cancel_s=0.1)
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=f"sqlite:{tmp_path}/t.db"))
    async with conversing(ScriptedAgent(deaf), config=config) as (app, thread):
        await conversations_of(app).start_message(ADA, thread, "hello")
        await has_spoken.wait()
    async with open_test_app(config=config, agents={"main": ScriptedAgent()}) as app:
        (turn,) = await conversations_of(app).list_turns(ADA, thread)
        messages = await conversations_of(app).read_messages(ADA, thread)

    assert turn.state == "interrupted"
    assert [m.text for m in messages] == ["hello", "so far"]


async def test_a_server_that_ends_lets_plugins_hear_of_the_end_of_a_turn() -> None:
    listener, heard = Plugin("listener", version="1.0.0"), list[str]()

    @listener.hook
    async def toolpost_on_complete(ended: TurnEnded) -> None:
        await anyio.sleep(0.2)  # it is slow on purpose
        heard.append(ended.text)

    async with open_test_app(listener, agents={"main": ScriptedAgent()}) as app:
        thread = await conversations_of(app).create_thread(ADA)
        await conversations_of(app).handle_message(ADA, thread.id, "hello")
        at_once = list(heard)

    assert (at_once, heard) == ([], ["hello"])


async def test_what_is_said_without_a_thread_is_kept_apart_by_caller_and_session() -> None:
    async def count(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        yield TextChunk(text=f"{session.number}.{len(session.prompts)}")

    async with conversing(ScriptedAgent(count)) as (app, _):

        async def ask(who: Principal, **options: Any) -> str:
            return (await conversations_of(app).invoke(who, "hello", InvokeOptions(**options))).text

        texts = [
            await ask(ADA),
            await ask(ADA),
            await ask(BOB),
            await ask(ADA, session=AgentSessionId("s")),
            await ask(BOB, session=AgentSessionId("s")),
        ]

    assert texts == ["1.1", "1.2", "2.1", "3.1", "4.1"]


async def test_what_is_asked_aside_is_asked_in_the_thread_s_own_session_and_not_kept() -> None:
    agent = ScriptedAgent()
    async with conversing(agent) as (app, thread):
        other = (await conversations_of(app).create_thread(ADA)).id
        aside = InvokeOptions(thread=thread, session=AgentSessionId("s"))
        await said(app, thread, "red")
        await conversations_of(app).invoke(ADA, "which?", aside)
        conversations_of(app).pool.evict_thread(thread)
        await conversations_of(app).invoke(ADA, "which again?", aside)
        await said(app, thread, "green")
        messages = await conversations_of(app).read_messages(ADA, thread)
        with pytest.raises(NotFound):
            await conversations_of(app).invoke(BOB, "and mine?", aside)
        for refused in (
            conversations_of(app).handle_message(ADA, other, "hello", aside),
            conversations_of(app).prewarm(ADA, other, aside),
        ):
            with pytest.raises(InvalidRequest, match="another thread"):
                await refused

    first, second = agent.sessions
    assert first.prompts == ["red", "which?"]
    assert '"text":"red"' in second.prompts[0], "a session that is new is told what was said before"
    assert second.prompts[1] == "green", "and is told nothing twice"
    assert [m.text for m in messages] == ["red", "red", "green", "green"]


async def test_without_an_agent_nobody_answers_and_it_is_said_what_to_do() -> None:
    async with open_test_app() as app:
        thread = await conversations_of(app).create_thread(ADA)
        with pytest.raises(CapabilityMissing, match="No agent is configured"):
            await conversations_of(app).handle_message(ADA, thread.id, "hello")
        with pytest.raises(NotFound):
            await conversations_of(app).handle_message(ADA, ThreadId("t-none"), "hello")
        with pytest.raises(InvalidRequest):
            await conversations_of(app).handle_message(ADA, thread.id, "  ")


async def test_hooks_hear_change_and_answer_in_their_order() -> None:
    seen: list[Any] = []
    plugin = Plugin("ears")

    @plugin.hook
    def toolpost_on_message(turn: TurnInfo, text: str) -> None:
        seen.append(("message", text))

    @plugin.hook
    async def toolpost_classify(text: str) -> str | None:
        return "pong" if text == "/ping" else None

    @plugin.hook
    async def toolpost_before_invoke(prompt: str) -> str:
        return f"{prompt}, please"

    @plugin.hook
    async def toolpost_after_invoke(answer: str) -> None:
        seen.append(("answer", answer))

    @plugin.hook
    async def toolpost_on_complete(turn: TurnInfo, ended: TurnEnded) -> None:
        seen.append((ended.state, ended.thread == turn.thread))

    agent = ScriptedAgent()
    async with conversing(agent, plugin) as (app, thread):
        ping = await said(app, thread, "/ping")
        asked = await said(app, thread, "help")
        await until(lambda: len(seen) >= 6)
        messages = await conversations_of(app).read_messages(ADA, thread)

    assert (ping.text, asked.text.endswith("help, please")) == ("pong", True)
    assert messages[1].details == {"by": "plugin"}
    assert seen[:3] == [("message", "/ping"), ("answer", "pong"), ("done", True)]
    assert [entry[0] for entry in seen[3:]] == ["message", "answer", "done"]


def requiring(word: str) -> Plugin:
    """Make a plugin that requires a word in each answer."""
    plugin = Plugin("strict")

    @plugin.hook
    async def toolpost_check_answer(answer: str) -> str | None:
        return None if word in answer else f"say {word}"

    return plugin


async def test_an_agent_is_asked_once_more_for_what_is_required() -> None:
    agent = ScriptedAgent()
    async with conversing(agent, requiring("please")) as (app, thread):
        polite = await said(app, thread, "yes, please")
        asked = await said(app, thread, "help")
        messages = await conversations_of(app).read_messages(ADA, thread)

    assert [session.prompts for session in agent.sessions] == [["yes, please", "help", "say please"]]
    assert (polite.state, asked.state, asked.text) == ("done", "done", "help\n\nsay please")
    assert [m.text for m in messages] == ["yes, please", "yes, please", "help", "help\n\nsay please"]


async def test_a_turn_without_what_is_required_fails() -> None:
    async def deaf(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        yield TextChunk(text="no")

    agent = ScriptedAgent(deaf)
    async with conversing(agent, requiring("please")) as (app, thread):
        ended = await said(app, thread, "help")

    assert (ended.state, ended.text) == ("failed", "no\n\nno")
    assert ended.error is not None
    assert "say please" in ended.error["message"]
    assert agent.sessions[0].prompts == ["help", "say please"]


async def test_what_is_required_is_not_skipped_where_it_cannot_be_checked() -> None:
    plugin = Plugin("strict")

    @plugin.hook
    async def toolpost_check_answer(answer: str) -> str | None:
        raise KeyError(answer)

    async with conversing(ScriptedAgent(), plugin) as (app, thread):
        ended = await said(app, thread, "help")

    assert ended.state == "failed"
    assert ended.error is not None
    assert "`strict` could not check" in ended.error["message"]


@pytest.mark.parametrize("moment", ["checked", "asked again"])
async def test_a_turn_is_stopped_while_more_is_required(moment: str) -> None:
    is_there = anyio.Event()
    plugin = Plugin("strict")

    @plugin.hook
    async def toolpost_check_answer(answer: str) -> str | None:
        if moment == "checked":
            is_there.set()
            await anyio.sleep(0.1)  # it is slow on purpose
        return "more"

    async def slow(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        yield TextChunk(text=prompt)
        if prompt == "more":
            is_there.set()
            await session.cancelled.wait()

    agent = ScriptedAgent(slow)
    async with conversing(agent, plugin) as (app, thread):
        run = await conversations_of(app).start_message(ADA, thread, "help", InvokeOptions())
        with anyio.fail_after(30):
            await is_there.wait()
            run.stop("cancelled", "enough")
            await run.done.wait()

    assert run.ended is not None
    assert run.ended.state == "cancelled"
    assert agent.sessions[0].prompts == (["help"] if moment == "checked" else ["help", "more"])


@pytest.mark.parametrize("kind", ["raises", "hangs", "blocks", "swallows"])
async def test_a_hook_that_fails_harms_nobody_but_its_plugin(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin, other = Plugin("careless"), Plugin("careful")
    ended: list[str] = []

    async def hangs(prompt: str) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("hangs")
        return ""

    async def swallows(prompt: str) -> str:
        for _ in range(12):
            try:
                await anyio.sleep(0.1)
            except BaseException:
                ended.append("swallows")
        return ""

    async def raises(prompt: str) -> str:
        raise KeyError("lost")

    def blocks(prompt: str) -> str:
        time.sleep(0.5)  # it is slow on purpose
        return ""

    hook = {"raises": raises, "hangs": hangs, "blocks": blocks, "swallows": swallows}[kind]
    hook.__name__ = "toolpost_before_invoke"
    plugin.hook(hook)

    @other.hook
    async def toolpost_before_invoke(prompt: str) -> str:
        return f"{prompt}!"

    async with conversing(ScriptedAgent(), plugin, other) as (app, thread):
        conversations_of(app).hooks._limits_s["toolpost_before_invoke"] = 0.1
        with anyio.fail_after(30):
            answer = await said(app, thread, "hello")
        health = app.monitor.health()["plugins"]

    assert (answer.state, answer.text) == ("done", "hello!")
    assert (health["careless"]["state"], health["careful"]["state"]) == ("degraded", "healthy")
    assert "toolpost_before_invoke" in health["careless"]["problems"][0]
    assert ended[:1] == ([kind] if kind in ("hangs", "swallows") else [])


@pytest.mark.wire
async def test_plugins_hear_of_the_tools_that_an_agent_uses() -> None:
    heard: list[ToolCall] = []
    plugin = Plugin("ears")

    @plugin.hook
    async def toolpost_on_tool_call(call: ToolCall) -> None:
        heard.append(call)

    async def calls(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        door = session.session_options.gateway
        assert door is not None
        headers = {"Authorization": f"Bearer {door.token}"}
        async with httpx2.AsyncClient(headers=headers) as http:
            async with Client(streamable_http_client(door.url, http_client=http)) as client:
                await client.call_tool("desk__add", {"a": 1, "b": 2})
                await client.call_tool("desk__fail", {})
        yield TextChunk(text="done")

    async with conversing(ScriptedAgent(calls), plugin, desk) as (app, thread), open_http(app):
        ended = await said(app, thread, "go")
        await until(lambda: len(heard) >= 2)

    assert [(call.tool, call.code) for call in heard] == [("desk__add", None), ("desk__fail", "HANDLER_ERROR")]
    assert {(call.thread, call.turn, call.trace_id) for call in heard} == {(thread, ended.turn, ended.trace_id)}


async def test_a_plugin_leads_a_conversation_itself() -> None:
    plugin = Plugin("leader")
    given: list[Conversations] = []

    @plugin.hook
    def toolpost_conversations(conversations: Conversations) -> None:
        given.append(conversations)

    async with conversing(ScriptedAgent(), plugin) as (_, thread):
        ended = await given[0].handle_message(ADA, thread, "from a plugin")

    assert ended.text == "from a plugin"
