"""Warm sessions: one key for whoever asks and whoever warms up, never one too many, never a busy one ended."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.parts.agents.asking import ADA, BOB
from tests.waiting import until
from toolpost.base.caller import Caller, Principal, Scope
from toolpost.base.ids import CallerId, ThreadId
from toolpost.contracts.errors import QueueOverloaded, ToolFailed, ToolTimedOut
from toolpost.fairness import Callers
from toolpost.parts.agents.agent import AgentGone, AgentSpec, SessionOptions
from toolpost.parts.agents.ids import AgentSessionId
from toolpost.parts.agents.session_key import PoolKey, pool_key, profile_of
from toolpost.parts.agents.session_pool import (
    AgentMetrics,
    OnGone,
    OpenedSession,
    PoolLimits,
    SessionOpener,
    SessionPool,
)
from toolpost.testing import ScriptedAgent

pytestmark = pytest.mark.anyio

SPEC = AgentSpec(name="main", kind="given", cwd=Path("/project"))


def key(thread: str | None = "t-1", standing: Principal = ADA, **options: Any) -> PoolKey:
    profile = profile_of(SPEC, model=options.pop("model", None), scopes=())
    return pool_key(standing.caller, profile, thread=ThreadId(thread) if thread else None, **options)


def opener(agent: ScriptedAgent) -> SessionOpener:
    @asynccontextmanager
    async def opened(on_gone: OnGone) -> AsyncIterator[OpenedSession]:
        order = SessionOptions(
            thread=None, model=None, cwd=Path(), permissions="deny", gateway=None, resume=None, on_gone=on_gone
        )
        async with agent.open(order) as session:
            yield OpenedSession(session=session)

    return opened


@asynccontextmanager
async def pool_of(*, are_several: bool = False, **limits: Any) -> AsyncIterator[SessionPool]:
    callers = Callers()
    callers.are_several = are_several
    pool = SessionPool(PoolLimits(**limits), AgentMetrics(), callers)
    async with pool.open_running():
        yield pool


async def test_the_key_is_the_thread_else_the_session_else_the_caller_s_default() -> None:
    session = AgentSessionId("s-1")

    assert key("t-1", session=session) == key("t-1", session=AgentSessionId("s-2")) == key("t-1")
    assert key(None, session=session) != key(None, session=AgentSessionId("s-2"))
    assert key(None) == key(None)
    assert len({key("t-1"), key("t-2"), key(None, session=session), key(None)}) == 4


async def test_no_key_is_ever_shared_between_callers() -> None:
    profile = profile_of(SPEC, model=None, scopes=())
    session = AgentSessionId("s-1")

    assert pool_key(ADA.caller, profile) != pool_key(BOB.caller, profile)
    assert pool_key(ADA.caller, profile, session=session) != pool_key(BOB.caller, profile, session=session)


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "other"},
        {"kind": "acp"},
        {"command": ("agent",)},
        {"env": {"A": "1"}},
        {"cwd": Path("/elsewhere")},
        {"model": "large"},
        {"permissions": "allow"},
        {"tools": ("!a",)},
        {"tools": ("!b",)},
        {"tags": frozenset({"x"})},
    ],
    ids=str,
)
async def test_every_part_of_a_profile_is_part_of_the_key(changed: dict[str, Any]) -> None:
    usual = profile_of(SPEC, model=None, scopes=()).digest
    other = profile_of(replace(SPEC, **changed), model=None, scopes=()).digest

    assert other != usual
    assert other == profile_of(replace(SPEC, **changed), model=None, scopes=()).digest


async def test_what_a_caller_may_not_use_is_named_in_the_profile_not_counted() -> None:
    def digest(pattern: str) -> str:
        return profile_of(SPEC, model=None, scopes=(Scope(tools=(pattern,)),)).digest

    assert digest("!shell__run") != digest("!files__delete")


async def test_many_who_want_a_session_share_one_opening() -> None:
    agent = ScriptedAgent(open_s=0.05)
    async with pool_of() as pool:

        async def ask() -> None:
            async with pool.lease(key(), opener(agent)):
                pass

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(pool.prewarm, key(), opener(agent))
                tasks.start_soon(ask)

        turns = pool.metrics.agent_turns
        assert len(agent.sessions) == 1
        assert (turns.value("cold"), turns.value("opening"), turns.value("warm")) == (0, 1, 4)


async def test_turns_of_one_key_come_in_order_one_at_a_time() -> None:
    agent, order, inside = ScriptedAgent(), [], 0
    async with pool_of() as pool:

        async def ask(number: int) -> None:
            nonlocal inside
            async with pool.lease(key(), opener(agent)):
                inside += 1
                assert inside == 1
                order.append(number)
                await anyio.sleep(0.002)  # turns overlap
                inside -= 1

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(ask, number)

    assert order == list(range(20))


async def test_a_full_pool_ends_the_one_that_was_idle_longest_and_never_a_busy_one() -> None:
    agent = ScriptedAgent()
    async with pool_of(size=3) as pool:
        async with pool.lease(key("busy"), opener(agent)):
            for thread in ("a", "b", "c", "d"):
                async with pool.lease(key(thread), opener(agent)):
                    assert len(pool.sessions) <= 3
            kept = {warm.key.thread for warm in pool.sessions}

        assert kept == {"busy", "c", "d"}
        assert pool.metrics.agent_evictions.value("room") == 2


async def test_when_all_are_busy_the_next_waits_for_its_turn() -> None:
    agent, most = ScriptedAgent(), 0
    async with pool_of(size=2) as pool:

        async def ask(thread: str) -> None:
            nonlocal most
            async with pool.lease(key(thread), opener(agent)):
                most = max(most, sum(not session.is_closed for session in agent.sessions))
                await anyio.sleep(0.005)  # turns overlap

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(ask, f"t-{number}")

        assert most == 2
        assert pool.waiting == 0


async def test_a_queue_that_is_full_refuses_and_says_so() -> None:
    agent = ScriptedAgent()
    async with pool_of(size=1, waiting=2) as pool, anyio.create_task_group() as tasks:

        async def hold(thread: str) -> None:
            async with pool.lease(key(thread), opener(agent)):
                await anyio.sleep_forever()

        for thread in ("a", "b", "b"):
            tasks.start_soon(hold, thread)
            await anyio.sleep(0.01)
        waiting = pool.waiting
        with pytest.raises(QueueOverloaded):
            async with pool.lease(key("c"), opener(agent)):
                pass
        with pytest.raises(QueueOverloaded):
            await pool.prewarm(key("d"), opener(agent))
        tasks.cancel_scope.cancel()

    assert waiting == 2
    assert all(session.is_closed for session in agent.sessions)


async def used(pool: SessionPool, agent: ScriptedAgent, *keys: PoolKey) -> None:
    for one in keys:
        async with pool.lease(one, opener(agent)):
            pass


async def test_one_caller_has_at_most_their_share_of_the_sessions() -> None:
    agent = ScriptedAgent()
    async with pool_of(size=4, waiting=4, are_several=True) as pool, anyio.create_task_group() as tasks:

        async def hold(thread: str) -> None:
            async with pool.lease(key(thread), opener(agent)):
                await anyio.sleep_forever()

        for thread in ("a", "b", "c", "d"):
            tasks.start_soon(hold, thread)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(QueueOverloaded) as refused:
            await used(pool, agent, key("e"))
        with anyio.fail_after(30):
            await used(pool, agent, key("x", BOB), key("y", BOB))
        tasks.cancel_scope.cancel()

    assert refused.value.is_own
    assert len(agent.sessions) == 4


async def test_many_conversations_of_one_caller_close_no_session_of_another() -> None:
    agent = ScriptedAgent()
    async with pool_of(size=4, are_several=True) as pool:
        await used(pool, agent, key("x", BOB), key("y", BOB))
        await used(pool, agent, *(key(f"t-{number}") for number in range(6)))
        kept = {warm.key.thread for warm in pool.sessions if warm.is_open}

    assert kept == {"x", "y", "t-4", "t-5"}


async def test_nobody_waits_because_others_have_left_their_sessions_idle() -> None:
    agent, eve = ScriptedAgent(), Principal(caller=Caller(id=CallerId("eve"), transport="http"))
    async with pool_of(size=4, are_several=True) as pool:
        await used(pool, agent, key("x", BOB), key("y", BOB), key("a"), key("b"))
        with anyio.fail_after(30):
            await used(pool, agent, key("e", eve))
        kept = {warm.key.thread for warm in pool.sessions if warm.is_open}

    # Of those who have most, the one that was idle longest.
    assert kept == {"y", "a", "b", "e"}


async def test_an_idle_session_ends_after_its_time_counted_from_its_last_turn() -> None:
    agent = ScriptedAgent()
    async with pool_of(idle_s=0.2, jitter=0.1) as pool:
        async with pool.lease(key("busy"), opener(agent)):
            async with pool.lease(key("idle"), opener(agent)):
                pass
            await until(lambda: {warm.key.thread for warm in pool.sessions} == {"busy"})
            await anyio.sleep(0.4)  # what must not come would be here by now
            kept = {warm.key.thread for warm in pool.sessions}
            ended = anyio.current_time()
        await until(lambda: pool.sessions == [])

        assert kept == {"busy"}
        assert anyio.current_time() - ended >= 0.2 * 0.9
        assert pool.metrics.agent_evictions.value("idle") == 2


async def test_idle_times_are_spread() -> None:
    agent = ScriptedAgent()
    async with pool_of(idle_s=100, jitter=0.1) as pool:
        kept = [(await pool.prewarm(key(f"t-{number}"), opener(agent))).idle_limit_s for number in range(8)]

    assert len(set(kept)) == 8
    assert all(90 <= each <= 110 for each in kept)


@pytest.mark.parametrize(
    ("raised", "why"), [(ToolFailed("x"), "error"), (AgentGone("x"), "gone"), (KeyError("x"), "error")], ids=repr
)
async def test_whatever_goes_wrong_evicts_under_the_same_key(raised: Exception, why: str) -> None:
    agent = ScriptedAgent()
    async with pool_of() as pool:
        await pool.prewarm(key("other"), opener(agent))
        with pytest.raises(type(raised)):
            async with pool.lease(key(), opener(agent)):
                raise raised
        kept = [warm.key.thread for warm in pool.sessions]
        async with pool.lease(key(), opener(agent)):
            pass

        assert kept == ["other"]
        assert pool.metrics.agent_evictions.value(why) == 1
        assert len(agent.sessions) == 3


async def test_whoever_is_cancelled_in_the_middle_leaves_no_session_behind() -> None:
    agent = ScriptedAgent()
    async with pool_of() as pool:
        with anyio.CancelScope() as scope:
            async with pool.lease(key(), opener(agent)):
                scope.cancel()
                await anyio.sleep_forever()
        await until(lambda: not (pool.sessions or not agent.sessions[0].is_closed))

        assert pool.metrics.agent_evictions.value("abandoned") == 1


async def test_a_session_that_nobody_waits_for_any_more_is_still_warm_when_it_is_open() -> None:
    agent = ScriptedAgent(open_s=0.05)
    async with pool_of() as pool:
        with anyio.move_on_after(0.01):
            async with pool.lease(key(), opener(agent)):
                pass
        await until(lambda: any(pooled.is_idle for pooled in pool.sessions))
        async with pool.lease(key(), opener(agent)):
            pass

        assert len(agent.sessions) == 1
        assert pool.metrics.agent_turns.value("warm") == 1


async def test_a_wish_that_was_given_up_before_there_was_a_place_opens_nothing() -> None:
    agent = ScriptedAgent()
    async with pool_of(size=1) as pool:
        async with pool.lease(key("a"), opener(agent)):
            with anyio.move_on_after(0.02):
                async with pool.lease(key("b"), opener(agent)):
                    pass
        await anyio.wait_all_tasks_blocked()

        assert [warm.key.thread for warm in pool.sessions] == ["a"]
        assert len(agent.sessions) == 1


async def test_a_session_that_ends_by_itself_is_gone_from_the_pool() -> None:
    agent = ScriptedAgent()
    async with pool_of() as pool:
        await pool.prewarm(key(), opener(agent))
        agent.sessions[0].is_closed = True
        agent.sessions[0].session_options.on_gone("the process has ended")

        assert pool.find(key()) is None
        async with pool.lease(key(), opener(agent)) as warm:
            assert warm.session is agent.sessions[1]


async def test_prewarming_replaces_a_session_that_is_silently_gone() -> None:
    agent = ScriptedAgent()
    async with pool_of() as pool:
        first = await pool.prewarm(key(), opener(agent))
        first.idle_since -= 100
        again = await pool.prewarm(key(), opener(agent))
        idle_s = anyio.current_time() - first.idle_since
        agent.sessions[0].is_closed = True
        second = await pool.prewarm(key(), opener(agent))

        assert (again, second.is_open, len(agent.sessions)) == (first, True, 2)
        assert second is not first
        assert idle_s < 50, "its time begins anew"
        assert pool.metrics.agent_evictions.value("gone") == 1


async def test_an_opening_that_takes_too_long_is_ended() -> None:
    agent = ScriptedAgent(open_s=10)
    async with pool_of(open_s=0.05) as pool:
        with pytest.raises(ToolTimedOut):
            await pool.prewarm(key(), opener(agent))

        assert pool.sessions == []
        assert pool.metrics.agent_failures.value() == 1


async def test_two_hundred_threads_share_eight_sessions_and_leave_nothing() -> None:
    async def slow(prompt: str, session: Any) -> AsyncGenerator[Any, None]:
        await anyio.sleep(0.001)  # turns overlap
        yield None

    agent = ScriptedAgent(slow)
    most = 0
    async with pool_of(waiting=1_000) as pool:

        async def ask(number: int) -> None:
            nonlocal most
            async with pool.lease(key(f"t-{number % 200}"), opener(agent)):
                most = max(most, sum(not session.is_closed for session in agent.sessions))
                await anyio.sleep(0.0005)  # turns overlap

        async with anyio.create_task_group() as tasks:
            for number in range(600):
                tasks.start_soon(ask, number)
        assert (most, pool.waiting, len(pool.queues), len(pool._waiting_for_slot)) == (8, 0, 0, 0)

    assert all(session.is_closed for session in agent.sessions)
    assert not pool._closing


async def test_a_caller_of_another_name_gets_another_session() -> None:
    somebody = Principal(caller=Caller(id=CallerId("ada"), transport="http"))
    assert pool_key(somebody.caller, profile_of(SPEC, model=None, scopes=())) != key(None)
