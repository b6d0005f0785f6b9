"""What each session has been sent: kept for a while, bounded, and nobody's at the cost of somebody else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from toolpost.base.ids import CallerId
from toolpost.store import open_store, seen
from toolpost.store.clock import StoreClock

pytestmark = pytest.mark.anyio

ADA, BOB = CallerId("ada"), CallerId("bob")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@asynccontextmanager
async def limited(url: str, limit: int) -> AsyncIterator[seen.SeenTools]:
    async with open_store(url) as store:
        yield seen.SeenTools(store.scripts, limit=limit)


async def test_what_was_sent_is_known_after_a_restart(url: str) -> None:
    async with open_store(url) as store:
        await store.seen.remember(ADA, "one", {"git__log": "a", "git__diff": "b"})
        await store.seen.remember(ADA, "one", {"git__log": "c", "fs__read": "d"})
    async with open_store(url) as store, open_store(url) as another:
        here = await store.seen.recall(ADA, "one")
        there = await another.seen.recall(ADA, "one")

    assert here == there == {"git__diff": "b", "git__log": "c", "fs__read": "d"}


async def test_two_callers_who_choose_the_same_name_have_two_sessions(url: str) -> None:
    async with open_store(url) as store:
        await store.seen.remember(ADA, "one", {"git__log": "a"})
        of_bob = await store.seen.recall(BOB, "one")
        of_another = await store.seen.recall(ADA, "two")

    assert of_bob == of_another == {}


async def test_a_session_that_nobody_uses_is_forgotten(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000.0
    monkeypatch.setattr(StoreClock, "now", lambda _: now)
    async with open_store(url) as store:
        for name in ("used", "idle"):
            await store.seen.remember(ADA, name, {"git__log": "a"})
        now += seen.KEPT_S - 1
        await store.seen.remember(ADA, "used", {})
        now += 2
        used, idle = await store.seen.recall(ADA, "used"), await store.seen.recall(ADA, "idle")
        await store.seen.remember(ADA, "idle", {"fs__read": "b"})
        begun_again = await store.seen.recall(ADA, "idle")

    assert used == {"git__log": "a"}
    assert idle == {}
    assert begun_again == {"fs__read": "b"}


async def test_the_session_used_longest_ago_goes_first(url: str) -> None:
    async with limited(url, limit=10) as sessions:
        for number in range(10):
            await sessions.remember(ADA, f"{number}", {"t": "x"})
        await sessions.remember(ADA, "0", {})
        await sessions.remember(ADA, "10", {"t": "x"})
        left = [number for number in range(11) if await sessions.recall(ADA, f"{number}")]

    assert left == [0, 2, 3, 4, 5, 6, 7, 8, 9, 10]


async def test_whoever_opens_thousands_pushes_out_nobody_else(url: str) -> None:
    async with limited(url, limit=100) as sessions:
        for number in range(5):
            await sessions.remember(BOB, f"{number}", {"t": "x"})
        for number in range(400):
            await sessions.remember(ADA, f"{number}", {"t": "x"})
        of_bob = [number for number in range(5) if await sessions.recall(BOB, f"{number}")]
        of_ada = [number for number in range(400) if await sessions.recall(ADA, f"{number}")]

    assert of_bob == [0, 1, 2, 3, 4]
    assert 90 <= len(of_ada) <= 95
    assert of_ada == list(range(400 - len(of_ada), 400))


async def test_many_callers_with_one_session_each_share_the_room(url: str) -> None:
    async with limited(url, limit=10) as sessions:
        for number in range(30):
            await sessions.remember(CallerId(f"caller{number}"), "one", {"t": "x"})
        left = [number for number in range(30) if await sessions.recall(CallerId(f"caller{number}"), "one")]

    assert left == list(range(20, 30))


async def test_a_session_remembers_so_many_tools_and_no_more(url: str) -> None:
    async with open_store(url) as store:
        for start in range(0, 3_000, 100):
            await store.seen.remember(ADA, "one", {f"s__t{n}": "x" for n in range(start, start + 100)})
        known = await store.seen.recall(ADA, "one")

    assert len(known) == seen.TOOLS_LIMIT
    assert "s__t2999" in known
    assert "s__t1999" not in known


async def test_two_gateways_that_serve_one_session_forget_nothing(url: str) -> None:
    async with open_store(url) as store, open_store(url) as another:
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                one = (store, another)[number % 2]
                tasks.start_soon(one.seen.remember, ADA, "one", {f"s__t{number}": "x"})
        known = await store.seen.recall(ADA, "one")

    assert known == {f"s__t{number}": "x" for number in range(20)}
