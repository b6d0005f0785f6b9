"""Around the bus things fail: a full disk, a damaged page, a locked file, a clock that jumps. It says so, and loses nothing."""

import dataclasses
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path

import anyio
import pytest

from tests.parts.bus.test_bus import LOST, ME, given, keep_leases, wish, worked
from toolpost.contracts.errors import GatewayError
from toolpost.parts.bus import PART
from toolpost.parts.bus.errors import StaleLease
from toolpost.parts.bus.service import Bus
from toolpost.parts.bus.tasks import BusPolicy
from toolpost.store.part_migrations import migrate_part, open_part_store
from toolpost.store.scripts import Script, Statement
from toolpost.store.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio

FILL = """
import asyncio, json, resource, signal, sys
from toolpost.parts.bus.service import Bus
from toolpost.parts.bus.submission import Submission
from toolpost.parts.bus.tasks import TaskId
from toolpost.parts.bus import PART
from toolpost.store.part_migrations import open_part_store

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

def wish(number):
    return Submission(task=TaskId(f"t-{number}"), priority=2, payload=json.dumps("x" * 4000))

async def main():
    async with open_part_store(sys.argv[1], PART.name, PART.migrations) as store:
        bus = Bus(store)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))
        kept = 0
        try:
            while True:
                await bus.submit(wish(kept))
                kept += 1
        except Exception as error:
            told = type(error).__name__, str(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await bus.submit(wish(kept))
        print(json.dumps([kept, *told]))

asyncio.run(main())
"""


@asynccontextmanager
async def opened(path: Path, policy: BusPolicy = LOST) -> AsyncIterator[Bus]:
    async with open_part_store(path, PART.name, PART.migrations) as store:
        bus = Bus(store, policy=policy)
        async with bus.open_sweeping():
            yield bus


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.mark.wire
@pytest.mark.skipif(sys.platform == "win32", reason="limits are POSIX's")
async def test_a_full_disk_is_told_and_every_task_that_was_taken_is_there(path: Path) -> None:
    # A limit on the size of files is what a full disk is to a process.
    done = subprocess.run([sys.executable, "-c", FILL, str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    kept, kind, words = json.loads(done.stdout)

    async with opened(path) as bus:
        overview = await bus.overview()

    assert kind == "GatewayError"
    assert "disk" in words or "could not be read or written" in words
    assert kept > 50
    assert overview.counts == {"queued": kept + 1}


async def test_a_damaged_page_is_told(path: Path) -> None:
    async with opened(path) as bus:
        for number in range(200):
            await bus.submit(wish(f"t-{number}", payload=json.dumps("x" * 3_000)))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'bus_tasks'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)

    async with open_part_store(path, PART.name, PART.migrations) as store:
        bus = Bus(store)
        for asked in (lambda: bus.submit(wish("new")), bus.overview):
            with pytest.raises(GatewayError, match="is damaged") as caught:
                await asked()
            assert "backup" in (caught.value.hint or "")


async def test_a_locked_database_is_told_and_the_step_was_not_taken(path: Path) -> None:
    async with aclosing(await SqliteStore.open(path, busy_timeout_s=0.2)) as store:
        await migrate_part(store, path, PART.name, "toolpost.parts.bus.migrations")
        bus = Bus(store)
        await bus.submit(wish("before"))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(GatewayError, match="lock"):
                await bus.submit(wish("meanwhile"))
            other.execute("ROLLBACK")
        between = await bus.overview()
        await bus.submit(wish("meanwhile"))
        after = await bus.overview()

    assert between.counts == {"queued": 1}
    assert after.counts == {"queued": 2}


@pytest.mark.parametrize("jump_s", [-3_600.0, 3_600.0, -86_400.0 * 365])
async def test_a_clock_that_jumps_neither_keeps_a_lease_for_ever_nor_honours_an_old_one(
    path: Path, jump_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    async with opened(path) as bus:
        names = [await bus.register("ada", "me", by=ME), await bus.register("bob", "me", by=ME)]
        await bus.submit(wish("a-1"))
        lost = await worked(bus, names[0])
        keep_leases(bus)
        monkeypatch.setattr(time, "time", lambda: real() + jump_s)
        with anyio.fail_after(30):
            task = await worked(bus, names[1])
        with pytest.raises(StaleLease):
            await bus.complete(lost.id, lost.token, None, by=ME)
        await bus.complete(task.id, task.token, None, by=ME)
        await bus.submit(wish("a-2"))
        with anyio.fail_after(30):
            second = await given(bus, names[1])
        ended, _ = await bus.history(task.id)

    assert (ended.state, ended.worker) == ("done", "bob")
    assert second.id == "a-2"


async def test_a_clock_that_was_set_back_while_no_server_ran_keeps_no_lease_for_years(path: Path) -> None:
    def set_back() -> Script[None]:
        yield Statement("UPDATE bus_tasks SET expires_at = expires_at + 1e8")

    async with open_part_store(path, PART.name, PART.migrations) as store:
        bus = Bus(store, policy=LOST)
        names = [await bus.register("ada", "me", by=ME), await bus.register("bob", "me", by=ME)]
        await bus.submit(wish("a-1"))
        await worked(bus, names[0])
        await store.scripts.run(set_back)
    async with opened(path, dataclasses.replace(LOST, offer_s=0.3)) as bus:
        with anyio.fail_after(30):
            task = await given(bus, names[1])

    assert (task.id, task.attempt) == ("a-1", 1)
