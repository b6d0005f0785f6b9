"""Conversations in both kinds of store: numbered in order, ended once, forgotten as a whole."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from toolpost.base.ids import CallerId, ThreadId, TraceId
from toolpost.parts.agents import PART, TurnId
from toolpost.parts.agents.ids import AgentSessionId, new_thread_id, new_turn_id
from toolpost.parts.agents.threads import Resumable, Thread, Threads, Turn, TurnEndRecord
from toolpost.store import open_part_store

pytestmark = pytest.mark.anyio

ADA, BOB = CallerId("ada"), CallerId("bob")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@asynccontextmanager
async def open_threads(url: str) -> AsyncIterator[Threads]:
    async with open_part_store(url, PART.name, PART.migrations) as store:
        yield Threads(store.scripts)


async def begun(threads: Threads, caller: CallerId = ADA, **fields: Any) -> ThreadId:
    thread = new_thread_id()
    now = time.time()
    usual: dict[str, Any] = {"title": "", "agent": None, "model": None, "created_at": now, "changed_at": now}
    await threads.create(Thread(id=thread, caller=caller, **{**usual, **fields}))
    return thread


def turn_in(thread: ThreadId, at: float | None = None) -> Turn:
    now = at or time.time()
    return Turn(
        id=new_turn_id(),
        thread=thread,
        state="running",
        trace_id=TraceId("0" * 32),
        runner="here/1/2",
        started_at=now,
        alive_at=now,
    )


async def test_what_is_said_is_there_after_a_restart_in_order(url: str) -> None:
    async with open_threads(url) as threads:
        thread = await begun(threads, title="a \0 title", agent="main")
        turn = turn_in(thread)
        first = await threads.begin(turn, "hello\0 \U0001f600", {"from": "a test"})
        ending = TurnEndRecord(turn=turn.id, state="done", text="good morning", at_utc=time.time())
        resumable = Resumable(session=AgentSessionId("s-1"), profile="p")
        second = await threads.end(ending, resumable=resumable)
    async with open_threads(url) as threads:
        found = await threads.find(thread)
        messages = await threads.messages(thread)
        (ended,) = await threads.turns(thread)

    assert (first, second) == (1, 2)
    assert found is not None
    assert (found.title, found.agent, found.last_seq) == ("a \0 title", "main", 2)
    assert (found.session, found.session_profile, found.session_told) == ("s-1", "p", 2)
    assert [(m.seq, m.role, m.text, m.details) for m in messages] == [
        (1, "user", "hello\0 \U0001f600", {"from": "a test"}),
        (2, "assistant", "good morning", None),
    ]
    assert (ended.state, ended.error) == ("done", None)


async def test_a_turn_begins_once_and_ends_once(url: str) -> None:
    async with open_threads(url) as threads:
        thread = await begun(threads)
        turn = turn_in(thread)
        begins = [await threads.begin(turn, "hello") for _ in range(2)]
        await threads.note(turn.id, partial="so f", at_utc=5.0)
        noted = await threads.find_turn(turn.id)
        running = await threads.running()
        failed = TurnEndRecord(
            turn=turn.id, state="failed", text="so far", at_utc=time.time(), error={"code": "INTERNAL"}
        )
        ends = [await threads.end(failed)]
        ends.append(await threads.end(TurnEndRecord(turn=turn.id, state="done", text="late", at_utc=time.time())))
        await threads.note(turn.id, partial="too late", at_utc=6.0)
        ended = await threads.find_turn(turn.id)
        messages = await threads.messages(thread)

    assert (begins, ends) == ([1, 1], [2, 2])
    assert noted is not None
    assert (noted.partial, noted.alive_at) == ("so f", 5.0)
    assert [each.id for each in running] == [turn.id]
    assert ended is not None
    assert (ended.state, ended.error, ended.partial) == ("failed", {"code": "INTERNAL"}, "")
    assert [m.text for m in messages] == ["hello", "so far"]


async def test_messages_that_come_together_get_numbers_of_their_own(url: str) -> None:
    numbers: list[int | None] = []
    async with open_threads(url) as threads:
        thread = await begun(threads)

        async def say() -> None:
            numbers.append(await threads.begin(turn_in(thread), "hello"))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(say)
        last = await threads.last_messages(thread, after=3, up_to=18, limit=5)

    assert sorted(number or 0 for number in numbers) == list(range(1, 21))
    assert [m.seq for m in last] == [14, 15, 16, 17, 18]


async def test_threads_are_listed_by_caller_those_that_changed_last_first(url: str) -> None:
    async with open_threads(url) as threads:
        mine = [await begun(threads, changed_at=float(at)) for at in range(1, 6)]
        theirs = await begun(threads, BOB, changed_at=9.0)
        await threads.begin(turn_in(mine[0], at=7.0), "again")
        page = await threads.page(ADA, limit=2)
        rest = await threads.page(ADA, before=page[-1].changed_at)
        everybody = await threads.page(None, limit=1)

    assert [thread.id for thread in (*page, *rest)] == [mine[0], mine[4], mine[3], mine[2], mine[1]]
    assert [thread.id for thread in everybody] == [theirs]


async def test_a_thread_is_named_once_and_changed_in_parts(url: str) -> None:
    async with open_threads(url) as threads:
        thread = await begun(threads)
        await threads.begin(turn_in(thread), "what is rust?", title="what is rust?")
        await threads.begin(turn_in(thread), "and zig?", title="and zig?")
        await threads.set(thread, agent="other")
        await threads.set(thread, model="large")
        named = await threads.find(thread)
        await threads.set(thread, title="languages")
        changed = await threads.find(thread)
        await threads.set(thread, agent="", model="")
        plain = await threads.find(thread)

    assert named is not None
    assert changed is not None
    assert plain is not None
    assert (named.title, named.agent, named.model) == ("what is rust?", "other", "large")
    assert (changed.title, changed.agent, changed.model) == ("languages", "other", "large")
    assert (plain.title, plain.agent, plain.model) == ("languages", None, None)


async def test_who_runs_a_turn_is_asked_to_stop_it(url: str) -> None:
    async with open_threads(url) as threads:
        thread, other = await begun(threads), await begun(threads)
        first, second, third = turn_in(thread), turn_in(thread), turn_in(other)
        for turn in (first, second, third):
            await threads.begin(turn, "hello")
        asked = [
            await threads.ask_to_stop(thread, turn=first.id, but="here/1/2"),
            await threads.ask_to_stop(other, turn=first.id, but="there/1/2"),
            await threads.ask_to_stop(thread, turn=first.id, but="there/1/2"),
        ]
        one = await threads.asked_to_stop("here/1/2")
        everything = await threads.ask_to_stop(thread, turn=None, but="there/1/2")
        await threads.ask_to_stop(thread, turn=first.id, but="there/1/2")
        both = await threads.asked_to_stop("here/1/2")
        await threads.end(TurnEndRecord(turn=first.id, state="cancelled", text=None, at_utc=time.time()))
        left = await threads.asked_to_stop("here/1/2")

    assert [[turn.id for turn in turns] for turns in asked] == [[], [], [first.id]]
    assert one == [(first.id, False)]
    assert {(turn.id, turn.runner) for turn in everything} == {(first.id, "here/1/2"), (second.id, "here/1/2")}
    assert sorted(both) == sorted([(first.id, True), (second.id, True)])
    assert left == [(second.id, True)]


async def test_a_thread_is_forgotten_as_a_whole(url: str) -> None:
    async with open_threads(url) as threads:
        kept, gone = await begun(threads), await begun(threads)
        for thread in (kept, gone):
            await threads.begin(turn_in(thread), "hello")
        await threads.set(kept, title="new", agent="other", model="large")
        await threads.delete(gone)
        late = await threads.begin(turn_in(gone), "is anybody there?")
        found = await threads.find(kept)

        assert late is None
        assert await threads.find(gone) is None
        assert (await threads.messages(gone), await threads.turns(gone)) == ([], [])
        assert found is not None
        assert (found.title, found.agent, found.model) == ("new", "other", "large")
        assert len(await threads.running()) == 1


async def test_what_is_not_there_is_told_so(url: str) -> None:
    async with open_threads(url) as threads:
        nothing = ThreadId("t-none")
        await threads.delete(nothing)
        await threads.note(TurnId("u-none"), partial="", at_utc=1.0)
        ended = await threads.end(TurnEndRecord(turn=TurnId("u-none"), state="done", text="x", at_utc=1.0))

        assert ended is None
        assert await threads.find(nothing) is None
        assert await threads.find_turn(TurnId("u-none")) is None


async def test_no_more_are_kept_than_there_is_room_for(url: str) -> None:
    async with open_threads(url) as threads:
        now = time.time()

        async def create(caller: CallerId) -> int | None:
            thread = Thread(
                id=new_thread_id(), caller=caller, title="", agent=None, model=None, created_at=now, changed_at=now
            )
            return await threads.create(thread, share=2, total=3)

        said = [await create(caller) for caller in (ADA, ADA, ADA, BOB, BOB)]
        kept = len(await threads.page(None))

    assert said == [None, None, 2, None, 1]
    assert kept == 3
