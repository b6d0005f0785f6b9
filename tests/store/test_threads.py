"""Conversations in both kinds of store: numbered in order, ended once, forgotten as a whole."""

import time
from typing import Any

import anyio
import pytest

from toolpost.base.ids import (
    AgentSessionId,
    CallerId,
    ThreadId,
    TraceId,
    TurnId,
    new_thread_id,
    new_turn_id,
)
from toolpost.store import Resumable, Store, Thread, Turn, TurnEndRecord, open_store

pytestmark = pytest.mark.anyio

ADA, BOB = CallerId("ada"), CallerId("bob")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


async def begun(store: Store, caller: CallerId = ADA, **fields: Any) -> ThreadId:
    thread = new_thread_id()
    now = time.time()
    usual: dict[str, Any] = {"title": "", "agent": None, "model": None, "created_at": now, "changed_at": now}
    await store.threads.create(Thread(id=thread, caller=caller, **{**usual, **fields}))
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
    async with open_store(url) as store:
        thread = await begun(store, title="a \0 title", agent="main")
        turn = turn_in(thread)
        first = await store.threads.begin(turn, "hello\0 \U0001f600", {"from": "a test"})
        ending = TurnEndRecord(turn=turn.id, state="done", text="good morning", at_utc=time.time())
        resumable = Resumable(session=AgentSessionId("s-1"), profile="p")
        second = await store.threads.end(ending, resumable=resumable)
    async with open_store(url) as store:
        found = await store.threads.find(thread)
        messages = await store.threads.messages(thread)
        (ended,) = await store.threads.turns(thread)

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
    async with open_store(url) as store:
        thread = await begun(store)
        turn = turn_in(thread)
        begins = [await store.threads.begin(turn, "hello") for _ in range(2)]
        await store.threads.note(turn.id, partial="so f", at_utc=5.0)
        noted = await store.threads.find_turn(turn.id)
        running = await store.threads.running()
        failed = TurnEndRecord(
            turn=turn.id, state="failed", text="so far", at_utc=time.time(), error={"code": "INTERNAL"}
        )
        ends = [await store.threads.end(failed)]
        ends.append(await store.threads.end(TurnEndRecord(turn=turn.id, state="done", text="late", at_utc=time.time())))
        await store.threads.note(turn.id, partial="too late", at_utc=6.0)
        ended = await store.threads.find_turn(turn.id)
        messages = await store.threads.messages(thread)

    assert (begins, ends) == ([1, 1], [2, 2])
    assert noted is not None
    assert (noted.partial, noted.alive_at) == ("so f", 5.0)
    assert [each.id for each in running] == [turn.id]
    assert ended is not None
    assert (ended.state, ended.error, ended.partial) == ("failed", {"code": "INTERNAL"}, "")
    assert [m.text for m in messages] == ["hello", "so far"]


async def test_messages_that_come_together_get_numbers_of_their_own(url: str) -> None:
    numbers: list[int | None] = []
    async with open_store(url) as store:
        thread = await begun(store)

        async def say() -> None:
            numbers.append(await store.threads.begin(turn_in(thread), "hello"))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(say)
        last = await store.threads.last_messages(thread, after=3, up_to=18, limit=5)

    assert sorted(number or 0 for number in numbers) == list(range(1, 21))
    assert [m.seq for m in last] == [14, 15, 16, 17, 18]


async def test_threads_are_listed_by_caller_those_that_changed_last_first(url: str) -> None:
    async with open_store(url) as store:
        mine = [await begun(store, changed_at=float(at)) for at in range(1, 6)]
        theirs = await begun(store, BOB, changed_at=9.0)
        await store.threads.begin(turn_in(mine[0], at=7.0), "again")
        page = await store.threads.page(ADA, limit=2)
        rest = await store.threads.page(ADA, before=page[-1].changed_at)
        everybody = await store.threads.page(None, limit=1)

    assert [thread.id for thread in (*page, *rest)] == [mine[0], mine[4], mine[3], mine[2], mine[1]]
    assert [thread.id for thread in everybody] == [theirs]


async def test_a_thread_is_named_once_and_changed_in_parts(url: str) -> None:
    async with open_store(url) as store:
        thread = await begun(store)
        await store.threads.begin(turn_in(thread), "what is rust?", title="what is rust?")
        await store.threads.begin(turn_in(thread), "and zig?", title="and zig?")
        await store.threads.set(thread, agent="other")
        await store.threads.set(thread, model="large")
        named = await store.threads.find(thread)
        await store.threads.set(thread, title="languages")
        changed = await store.threads.find(thread)
        await store.threads.set(thread, agent="", model="")
        plain = await store.threads.find(thread)

    assert named is not None
    assert changed is not None
    assert plain is not None
    assert (named.title, named.agent, named.model) == ("what is rust?", "other", "large")
    assert (changed.title, changed.agent, changed.model) == ("languages", "other", "large")
    assert (plain.title, plain.agent, plain.model) == ("languages", None, None)


async def test_who_runs_a_turn_is_asked_to_stop_it(url: str) -> None:
    async with open_store(url) as store:
        thread, other = await begun(store), await begun(store)
        first, second, third = turn_in(thread), turn_in(thread), turn_in(other)
        for turn in (first, second, third):
            await store.threads.begin(turn, "hello")
        asked = [
            await store.threads.ask_to_stop(thread, turn=first.id, but="here/1/2"),
            await store.threads.ask_to_stop(other, turn=first.id, but="there/1/2"),
            await store.threads.ask_to_stop(thread, turn=first.id, but="there/1/2"),
        ]
        one = await store.threads.asked_to_stop("here/1/2")
        everything = await store.threads.ask_to_stop(thread, turn=None, but="there/1/2")
        await store.threads.ask_to_stop(thread, turn=first.id, but="there/1/2")
        both = await store.threads.asked_to_stop("here/1/2")
        await store.threads.end(TurnEndRecord(turn=first.id, state="cancelled", text=None, at_utc=time.time()))
        left = await store.threads.asked_to_stop("here/1/2")

    assert [[turn.id for turn in turns] for turns in asked] == [[], [], [first.id]]
    assert one == [(first.id, False)]
    assert {(turn.id, turn.runner) for turn in everything} == {(first.id, "here/1/2"), (second.id, "here/1/2")}
    assert sorted(both) == sorted([(first.id, True), (second.id, True)])
    assert left == [(second.id, True)]


async def test_a_thread_is_forgotten_as_a_whole(url: str) -> None:
    async with open_store(url) as store:
        kept, gone = await begun(store), await begun(store)
        for thread in (kept, gone):
            await store.threads.begin(turn_in(thread), "hello")
        await store.threads.set(kept, title="new", agent="other", model="large")
        await store.threads.delete(gone)
        late = await store.threads.begin(turn_in(gone), "is anybody there?")
        found = await store.threads.find(kept)

        assert late is None
        assert await store.threads.find(gone) is None
        assert (await store.threads.messages(gone), await store.threads.turns(gone)) == ([], [])
        assert found is not None
        assert (found.title, found.agent, found.model) == ("new", "other", "large")
        assert len(await store.threads.running()) == 1


async def test_what_is_not_there_is_told_so(url: str) -> None:
    async with open_store(url) as store:
        nothing = ThreadId("t-none")
        await store.threads.delete(nothing)
        await store.threads.note(TurnId("u-none"), partial="", at_utc=1.0)
        ended = await store.threads.end(TurnEndRecord(turn=TurnId("u-none"), state="done", text="x", at_utc=1.0))

        assert ended is None
        assert await store.threads.find(nothing) is None
        assert await store.threads.find_turn(TurnId("u-none")) is None


async def test_no_more_are_kept_than_there_is_room_for(url: str) -> None:
    async with open_store(url) as store:
        now = time.time()

        async def create(caller: CallerId) -> int | None:
            thread = Thread(
                id=new_thread_id(), caller=caller, title="", agent=None, model=None, created_at=now, changed_at=now
            )
            return await store.threads.create(thread, share=2, total=3)

        said = [await create(caller) for caller in (ADA, ADA, ADA, BOB, BOB)]
        kept = len(await store.threads.page(None))

    assert said == [None, None, 2, None, 1]
    assert kept == 3
