"""What was answered is on the disk: nobody is told before, and nobody after the disk has failed."""

import asyncio
import errno
import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import aclosing, closing
from pathlib import Path

import anyio
import pytest

from tests.waiting import until
from toolpost.audit import AuditEntry
from toolpost.contracts.errors import GatewayError
from toolpost.store import open_store
from toolpost.store.scripts import Script, Statement
from toolpost.store.sqlite import store as sqlite
from toolpost.store.sqlite import sync
from toolpost.store.sqlite.store import SqliteStore
from toolpost.store.sqlite.sync import LogSync, Settle
from toolpost.store.sqlite.transactions import LONG_COMMITS, Group, Transactions

pytestmark = pytest.mark.anyio


def added(server: str) -> Callable[[], Script[str]]:
    def script() -> Script[str]:
        yield Statement("INSERT INTO verdicts (server, kind, rules, found) VALUES (?1, 'x', '', '')", (server,))
        return server

    return script


def names() -> Script[list[str]]:
    rows = yield Statement("SELECT server FROM verdicts ORDER BY server")
    return [row[0] for row in rows]


def seen_by_others(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as other:
        return [row[0] for row in other.execute("SELECT server FROM verdicts ORDER BY server")]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0


class HeldSync(LogSync):
    """One that takes as long as a test says."""

    count = 0

    def start(self, group: Group, settle: Settle) -> None:
        assert not self.is_running, "one at a time"
        self._group, self._settle = list(group), settle
        HeldSync.count += 1
        HeldSync.latest = self

    latest: "HeldSync"

    @classmethod
    def end(cls, error: OSError | None = None) -> None:
        cls.latest._end(error)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> type[HeldSync]:
    HeldSync.count = 0
    monkeypatch.setattr(sqlite, "LogSync", HeldSync)
    return HeldSync


async def test_stores_come_and_go_and_leave_nothing_open(path: Path) -> None:
    async def use(number: int) -> None:
        async with open_store(f"sqlite:{path}") as store:
            await store.scripts.run(added(f"{number:03}"), is_short=True)

    for number in range(3):
        await use(number)
    before = open_files()
    for number in range(3, 30):
        await use(number)
    after = open_files()

    assert after <= before
    assert seen_by_others(path) == [f"{number:03}" for number in range(30)]


async def until_synced(held: type[HeldSync], count: int) -> None:
    """Wait until so many groups were committed, and wait for the disk."""
    await until(lambda: held.count >= count)


async def test_nobody_is_answered_before_it_is_on_the_disk(held: type[HeldSync], path: Path) -> None:
    async with aclosing(await SqliteStore.open(path)) as store:
        first = [asyncio.ensure_future(store.scripts.run(added(f"a{n}"), is_short=True)) for n in range(3)]
        await until_synced(held, 1)
        committed, were_told = seen_by_others(path), [one.done() for one in first]
        # What only looks sees what is committed, and is as good as answered by it.
        look = asyncio.ensure_future(store.scripts.read(names))
        await asyncio.sleep(0.05)  # what must not come would be here by now
        # Whoever needs no disk does not wait for one.
        with anyio.fail_after(20):
            await store.scripts.run(added("b"), durable=False, is_short=True)
        later = [asyncio.ensure_future(store.scripts.run(added(f"c{n}"), is_short=True)) for n in range(3)]
        await asyncio.sleep(0.05)  # what must not come would be here by now
        has_looked = look.done()
        held.end()
        await asyncio.gather(*first)
        seen = await look
        await until_synced(held, 2)
        are_told = [one.done() for one in later]
        held.end()
        await asyncio.gather(*later)

    assert committed == ["a0", "a1", "a2"]
    assert not any(were_told)
    assert not has_looked
    assert seen == ["a0", "a1", "a2"]
    assert not any(are_told)
    assert held.count == 2


async def test_after_the_disk_failed_nothing_is_called_done(
    held: type[HeldSync], path: Path, entry: Callable[..., AuditEntry]
) -> None:
    async with aclosing(await SqliteStore.open(path)) as store:
        during = [asyncio.ensure_future(store.scripts.run(added(f"a{n}"), is_short=True)) for n in range(3)]
        await until_synced(held, 1)
        waiting = [asyncio.ensure_future(store.scripts.run(added(f"b{n}"), is_short=n > 0)) for n in range(3)]
        look = asyncio.ensure_future(store.scripts.read(names))
        with anyio.fail_after(30):
            # Until the reader has read, and waits for the disk as well.
            while store._writer._pending < 7:
                await asyncio.sleep(0.01)
        held.end(OSError(errno.EIO, "Input/output error"))
        said = await asyncio.gather(*during, *waiting, look, return_exceptions=True)
        for is_short in (True, False):
            with pytest.raises(GatewayError, match="start again"):
                await store.scripts.run(added("late"), is_short=is_short)
        await store.audit.append(entry())

    assert [type(one) for one in said] == [GatewayError] * 7
    assert all("Input/output error" in str(one) for one in said)
    assert held.count == 1
    assert seen_by_others(path) == ["a0", "a1", "a2"]


async def test_a_store_whose_disk_failed_goes_on_when_it_is_opened_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, writes = os.pipe()  # which no system puts on a disk
    with monkeypatch.context() as patched:
        patched.setattr(sync, "_sync_data", lambda _file: os.fdatasync(writes))
        async with aclosing(await SqliteStore.open(path)) as store:
            with pytest.raises(GatewayError, match="could not be read or written") as caught:
                await store.scripts.run(added("a"), is_short=True)
            with pytest.raises(GatewayError, match="start again"):
                await store.scripts.run(added("b"), is_short=True)
    os.close(reads)
    os.close(writes)
    async with aclosing(await SqliteStore.open(path)) as again:
        await again.scripts.run(added("c"), is_short=True)
        kept = await again.scripts.read(names)

    assert "disk" in (caught.value.hint or "")
    assert kept == ["a", "c"]


async def test_a_store_that_is_full_waits_for_the_disk_with_everything(held: type[HeldSync], path: Path) -> None:
    async with aclosing(await SqliteStore.open(path, durable=True)) as store:
        asked = asyncio.ensure_future(store.scripts.run(added("a"), durable=False, is_short=True))
        await until_synced(held, 1)
        was_told = asked.done()
        held.end()
        await asked

    assert not was_told


async def test_closing_waits_for_the_disk(held: type[HeldSync], path: Path) -> None:
    store = await SqliteStore.open(path)
    asked = asyncio.ensure_future(store.scripts.run(added("a"), is_short=True))
    await until_synced(held, 1)
    closing_it = asyncio.ensure_future(store.aclose())
    await asyncio.sleep(0.05)  # what must not come would be here by now
    was_closed = closing_it.done()
    held.end()
    await closing_it

    assert not was_closed
    assert await asked == "a"


async def test_the_log_is_moved_now_and_then(path: Path) -> None:
    async with aclosing(await SqliteStore.open(path)) as store:
        for number in range(LONG_COMMITS * 5):
            await store.scripts.run(added(f"{number:05} {'x' * 200}"), durable=number % 8 == 0, is_short=True)
        log_bytes = path.with_name(path.name + "-wal").stat().st_size
        file_bytes = path.stat().st_size
        kept = await store.scripts.read(names)

    assert len(kept) == LONG_COMMITS * 5
    assert log_bytes < LONG_COMMITS * 2 * 8 * 4_096
    assert file_bytes > LONG_COMMITS * 3 * 200


async def test_the_loop_goes_on_by_itself_when_the_log_was_moved(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_thread = 0
    commit = Transactions.commit

    def counted(self: Transactions, group: Group) -> None:
        nonlocal by_thread
        by_thread += 1
        commit(self, group)

    monkeypatch.setattr(Transactions, "commit", counted)
    async with aclosing(await SqliteStore.open(path)) as store:
        waiting: list[asyncio.Future[str]] = []
        while store._writer.commits < 4 * LONG_COMMITS:
            # Somebody comes all the time, also while the thread is at work; not without end, or the thread gets no turn.
            waiting.append(asyncio.ensure_future(store.scripts.run(added(f"{len(waiting)}"), is_short=True)))
            await (waiting[-50] if len(waiting) >= 50 else asyncio.sleep(0))
        await asyncio.gather(*waiting)
        kept = await store.scripts.read(names)

    assert 3 <= by_thread <= 6
    assert len(kept) == len(waiting)


async def test_others_may_move_the_log_and_begin_it_anew_meanwhile(path: Path) -> None:
    """Whoever moves it puts it on the disk first, and the database after: what is on its way is on one of the two."""
    async with aclosing(await SqliteStore.open(path)) as store:
        with closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as other:
            for number in range(60):
                asked = [
                    asyncio.ensure_future(store.scripts.run(added(f"{number:02}{n}"), is_short=True)) for n in range(3)
                ]
                await asyncio.sleep(0)
                other.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
                other.execute(
                    "INSERT INTO verdicts (server, kind, rules, found) VALUES (?, 'y', '', '')", (f"{number:02}other",)
                )
                with anyio.fail_after(20):
                    await asyncio.gather(*asked)
        kept = await store.scripts.read(names)

    assert len(kept) == 60 * 4
