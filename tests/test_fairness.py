"""Fair shares where they live: what one caller gets of everything, and whose turn it is."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace

import anyio
import pytest

from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId, ThreadId
from toolpost.contracts.errors import QueueOverloaded
from toolpost.fairness import Callers, FairQueue, Shares

pytestmark = pytest.mark.anyio

ADA, BOB, EVE = CallerId("ada"), CallerId("bob"), CallerId("eve")


def several(part: float = 0.5) -> Callers:
    callers = Callers(part)
    callers.are_several = True
    return callers


@pytest.mark.parametrize(
    ("total", "part", "share"), [(10, 0.5, 5), (3, 0.5, 1), (1, 0.5, 1), (10, 1.0, 10), (9, 0.01, 1)]
)
def test_one_of_several_gets_their_part_and_never_nothing(total: int, part: float, share: int) -> None:
    assert several(part).share_of(total) == share
    assert Callers(part).share_of(total) == total


def test_a_share_is_held_until_it_is_given_back() -> None:
    shares = Shares("things", 4, several())
    shares.take(ADA)
    with shares.held(ADA):
        assert not shares.is_open_to(ADA)
        assert shares.is_open_to(BOB)
        with pytest.raises(QueueOverloaded) as own:
            shares.take(ADA)
    shares.take(ADA)
    for _ in range(2):
        shares.take(BOB)
    with pytest.raises(QueueOverloaded) as all_of_it:
        shares.take(EVE)
    for caller in (ADA, ADA, BOB, BOB):
        shares.give_back(caller)

    assert (own.value.is_own, own.value.details["limit"]) == (True, 2)
    assert (all_of_it.value.is_own, all_of_it.value.details["limit"]) == (False, 4)
    assert (shares.taken, shares[ADA], shares[BOB]) == (0, 0, 0)


def test_a_single_caller_gets_everything() -> None:
    shares = Shares("things", 3, Callers())
    for _ in range(3):
        shares.take(ADA)

    assert not shares.is_open_to(ADA)


def test_an_overload_says_when_to_try_again() -> None:
    told = Shares("things", 1, Callers(), retry_s=2.5)
    told.take(ADA)
    error = told.refusal(ADA).as_object()

    assert error["details"]["retryAfterMs"] == 2500
    assert error["hint"] == "try again in 2.5 s"


def test_an_overload_of_another_gateway_keeps_its_own_time() -> None:
    passed_on = QueueOverloaded("full", hint="wait; try again in 7 s", retryAfterMs=7000)

    assert passed_on.retry_s == 7
    assert passed_on.hint == "wait; try again in 7 s"


def test_who_may_see_all_calls() -> None:
    callers = several()
    callers.admins = frozenset({"ada"})

    def caller(name: str, transport: str = "http", thread: str | None = None) -> Caller:
        return Caller(
            id=CallerId(name), transport=transport, thread=ThreadId(thread) if thread else None, is_admin=True
        )

    assert callers.may_see_all(caller("ada"))
    # A token of a login, which has her name.
    assert not callers.may_see_all(replace(caller("ada"), is_admin=False))
    assert callers.may_see_all(caller("ada:subject"))
    assert not callers.may_see_all(caller("bob"))
    assert callers.may_see_all(caller("local", "stdio"))
    # An agent acts for an administrator, and is none.
    assert not callers.may_see_all(caller("ada", "agent"))
    assert not callers.may_see_all(caller("ada", "http", "thread"))
    assert Callers().may_see_all(caller("local"))


async def order_of(queue: FairQueue, *arrivals: CallerId) -> list[CallerId]:
    """Let calls come while one is inside, then say in which order they get in."""
    served: list[CallerId] = []
    await queue.enter(EVE)

    async def call(caller: CallerId) -> None:
        await queue.enter(caller)
        served.append(caller)
        await asyncio.sleep(0)
        queue.leave(caller)

    async with anyio.create_task_group() as tasks:
        for caller in arrivals:
            tasks.start_soon(call, caller)
        await anyio.wait_all_tasks_blocked()
        queue.leave(EVE)
    return served


async def test_callers_take_turns_and_keep_their_own_order() -> None:
    queue = FairQueue("calls", several(), at_once=1, waiting=20)

    assert await order_of(queue, ADA, ADA, ADA, ADA, BOB, BOB) == [ADA, BOB, ADA, BOB, ADA, ADA]
    assert queue.is_empty


async def test_nobody_waits_in_more_than_their_share_of_the_places() -> None:
    queue = FairQueue("calls", several(), at_once=1, waiting=4)
    await queue.enter(ADA)
    waiting = [asyncio.ensure_future(queue.enter(ADA)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(QueueOverloaded):
        await queue.enter(ADA)
    last = asyncio.ensure_future(queue.enter(BOB))
    await asyncio.sleep(0)
    for _ in range(2):
        queue.leave(ADA)
        await asyncio.sleep(0)
    queue.leave(BOB if last.done() else ADA)
    await asyncio.wait([*waiting, last])

    assert all(one.done() and not one.exception() for one in (*waiting, last))


async def test_one_caller_has_at_most_their_share_of_what_runs_at_once() -> None:
    queue = FairQueue("calls", several(), at_once=4, waiting=10)
    entered = [queue.try_enter(caller) for caller in (ADA, ADA, ADA, BOB, BOB, BOB)]
    late = asyncio.ensure_future(queue.enter(ADA))
    await asyncio.sleep(0)
    queue.leave(BOB)
    await asyncio.sleep(0)
    is_still_waiting = not late.done()
    queue.leave(ADA)
    await late

    assert entered == [True, True, False, True, True, False]
    assert is_still_waiting


async def test_whoever_gives_up_leaves_the_turn_to_the_next() -> None:
    queue = FairQueue("calls", several(), at_once=1, waiting=10)
    await queue.enter(ADA)
    waiting = [asyncio.ensure_future(queue.enter(caller)) for caller in (ADA, BOB, EVE)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    queue.leave(ADA)
    # Let in, and called off in the same moment.
    waiting[1].cancel()
    await _ended(*waiting[:2])
    await waiting[2]
    queue.leave(EVE)

    assert queue.is_empty


async def _ended(*futures: Awaitable[None]) -> None:
    for future in futures:
        with pytest.raises(asyncio.CancelledError):
            await future
