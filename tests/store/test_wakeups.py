"""Wake-ups: whoever listens is told, in this process and in others; after a lost connection everybody looks."""

import asyncio
import errno
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from tests.hostile.attacks import slowness
from tests.postgres import Postgres
from toolpost.store import Store, open_store
from toolpost.store.sqlite import wakeups as sqlite_wakeups
from toolpost.store.wakeups import Wake

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url) as store:
        yield store


async def test_whoever_listens_is_woken_at_once(store: Store) -> None:
    async with store.wakeups.open_listener("tasks") as listener:
        store.wakeups.ring("tasks")
        with anyio.fail_after(30):
            woken = await listener.wait()

    assert woken is Wake.RUNG


async def test_other_topics_wake_nobody(store: Store) -> None:
    async with store.wakeups.open_listener("tasks") as listener:
        store.wakeups.ring("something else")
        with anyio.move_on_after(0.2) as scope:
            await listener.wait()

    assert scope.cancelled_caught


async def test_a_full_disk_fails_no_ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_file: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with open_store(tmp_path / "store.db") as store, store.wakeups.open_listener("tasks") as listener:
        with monkeypatch.context() as full:
            full.setattr(os, "write", fail)
            # It is rung after a commit: the caller must not take the commit for failed.
            store.wakeups.ring("tasks")
        with anyio.fail_after(30):
            woken = await listener.wait()

    assert woken is Wake.RUNG


async def test_many_rings_are_one(store: Store) -> None:
    async with store.wakeups.open_listener("tasks") as listener:
        for _ in range(1_000):
            store.wakeups.ring("tasks")
        await listener.wait()
        with anyio.move_on_after(0.2) as scope:
            await listener.wait()

    assert scope.cancelled_caught


@pytest.mark.parametrize("topic", ["tasks", "worker 'a'; rm -rf \n\0 🦉 \ud800", "x" * 20_000])
async def test_another_store_in_the_same_place_is_heard(store: Store, url: str, topic: str) -> None:
    async with open_store(url) as other, store.wakeups.open_listener(topic) as listener:
        for _ in range(3):
            other.wakeups.ring(topic)
            with anyio.fail_after(30):
                assert await listener.wait() is Wake.RUNG


@pytest.mark.wire
async def test_another_process_is_heard(store: Store, url: str) -> None:
    ring = (
        "import asyncio, sys\n"
        "from toolpost.store import open_store\n"
        "async def main():\n"
        "    async with open_store(sys.argv[1]) as store:\n"
        "        store.wakeups.ring('tasks')\n"
        "asyncio.run(main())\n"
    )
    async with store.wakeups.open_listener("tasks") as listener:
        with subprocess.Popen([sys.executable, "-c", ring, url]):
            with anyio.fail_after(30):
                assert await listener.wait() is Wake.RUNG


async def test_five_hundred_listeners_are_each_told_their_own(store: Store, url: str) -> None:
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(open_store(url))
        listeners = [await stack.enter_async_context(store.wakeups.open_listener(f"worker-{n}")) for n in range(500)]
        for number in range(0, 500, 2):
            other.wakeups.ring(f"worker-{number}")
        with anyio.fail_after(30):
            for listener in listeners[::2]:
                await listener.wait()
        with anyio.move_on_after(0.2) as scope:
            await asyncio.wait([asyncio.ensure_future(one.wait()) for one in listeners[1::2]])

    assert scope.cancelled_caught


async def test_waiting_costs_next_to_nothing(store: Store) -> None:
    async with AsyncExitStack() as stack:
        for number in range(500):
            await stack.enter_async_context(store.wakeups.open_listener(f"worker-{number}"))
        before = time.process_time()
        await asyncio.sleep(1)  # it is the time whose cost is measured
        used_s = time.process_time() - before

    assert used_s < 0.6 * slowness(), "of a second"


async def test_after_a_restart_of_the_database_listeners_look_and_hear_again(postgres: Postgres) -> None:
    url = postgres.new_url()
    async with open_store(url) as store, open_store(url) as other, store.wakeups.open_listener("tasks") as listener:
        for mode in ("fast", "immediate", "kill"):
            await anyio.to_thread.run_sync(postgres.restart, mode)
            with anyio.fail_after(20):
                assert await listener.wait() is Wake.MAYBE_MISSED
            other.wakeups.ring("tasks")
            with anyio.fail_after(20):
                assert await listener.wait() is Wake.RUNG


async def test_a_ring_while_the_database_is_away_is_sent_when_it_is_back(postgres: Postgres) -> None:
    url = postgres.new_url()
    async with open_store(url) as store, open_store(url) as other, store.wakeups.open_listener("tasks") as listener:
        await anyio.to_thread.run_sync(postgres.stop)
        other.wakeups.ring("tasks")
        await anyio.to_thread.run_sync(postgres.start)
        with anyio.fail_after(20):
            await listener.wait()


async def test_the_file_of_rings_stays_small_and_private(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    largest_bytes = 1 << 16
    monkeypatch.setattr(sqlite_wakeups, "LARGEST_BYTES", largest_bytes)
    async with open_store(path) as store, open_store(path) as other, store.wakeups.open_listener("tasks") as listener:
        file = path.with_name("store.db-rings")
        for _ in range(5 * largest_bytes // 76):
            other.wakeups.ring("others")
        mode, size = file.stat().st_mode & 0o777, file.stat().st_size
        with anyio.fail_after(30):
            first = await listener.wait()
            other.wakeups.ring("tasks")
            second = await listener.wait()

    assert mode == 0o600
    assert size <= largest_bytes + 100
    assert (first, second) == (Wake.MAYBE_MISSED, Wake.RUNG)


async def test_what_is_in_memory_wakes_its_own(path: Path) -> None:
    async with open_store("sqlite::memory:") as store, store.wakeups.open_listener("tasks") as listener:
        store.wakeups.ring("tasks")
        with anyio.fail_after(30):
            assert await listener.wait() is Wake.RUNG


async def test_a_file_that_cannot_be_opened_ends_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As when descriptors have run out: whoever listens in this process is still woken."""
    wakeups = sqlite_wakeups.SqliteWakeups(path.with_name("missing") / "store.db")
    async with wakeups.open_listener("tasks") as listener:
        wakeups.ring("tasks")
        with anyio.fail_after(30):
            assert await listener.wait() is Wake.RUNG
    await wakeups.aclose()

    assert "other processes are not woken" in caplog.text
