"""The writer: many callers, few commits; nothing dropped, nobody left waiting."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolpost.audit import AuditEntry, AuditFilter
from toolpost.contracts.errors import GatewayError
from toolpost.parts.bus.errors import StaleLease
from toolpost.store.scripts import Script, Statement
from toolpost.store.sqlite import group_commit
from toolpost.store.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio
Make = Callable[..., AuditEntry]
EVERYTHING = AuditFilter()


class Gate:
    """A script that keeps the thread busy until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._opened = threading.Event()

    def __call__(self) -> Script[None]:
        self.entered.set()
        assert self._opened.wait(30)
        yield Statement("SELECT 1")

    def open(self) -> None:
        self._opened.set()


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    async with aclosing(await SqliteStore.open(path)) as store:
        yield store


async def close_the_gate(store: SqliteStore) -> tuple[Gate, asyncio.Future[None]]:
    gate = Gate()
    held = asyncio.ensure_future(store.scripts.run(gate, durable=False))
    await anyio.to_thread.run_sync(gate.entered.wait)
    return gate, held


async def test_many_appends_share_few_commits(path: Path, entry: Make) -> None:
    async with aclosing(await SqliteStore.open(path)) as store:
        await asyncio.gather(*(store.audit.append(entry()) for _ in range(10_000)))
        verdict = await store.audit.verify()
        commits = store.commits

    assert verdict.is_intact
    assert verdict.checked == 10_000
    assert commits < 500


async def test_what_comes_while_the_thread_works_is_committed_after_it_in_order(
    store: SqliteStore, entry: Make
) -> None:
    gate, held = await close_the_gate(store)
    appends = [asyncio.ensure_future(store.audit.append(entry())) for _ in range(20)]
    await anyio.wait_all_tasks_blocked()
    before = store.commits
    gate.open()
    await asyncio.gather(held, *appends)
    records = await store.audit.entries(EVERYTHING, limit=100)

    assert before == 0
    assert [record.entry.call_id for record in records] == [f"call-{n}" for n in range(1, 21)]


async def test_a_group_is_bounded_and_the_rest_is_committed_after_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "LARGEST_GROUP", 10)
    async with aclosing(await SqliteStore.open(path)) as store:
        done = await asyncio.gather(*(store.scripts.run(one, is_short=True) for _ in range(95)))

        assert done == [1] * 95
        assert store.commits == 10


def one() -> Script[int]:
    ((number,),) = yield Statement("SELECT 1")
    return int(number)


async def test_a_cancelled_append_is_on_the_record_all_the_same(store: SqliteStore, entry: Make) -> None:
    gate, held = await close_the_gate(store)
    appends = [asyncio.ensure_future(store.audit.append(entry())) for _ in range(20)]
    await anyio.wait_all_tasks_blocked()
    for queued_or_in_line in (appends[1], appends[10], appends[19]):
        queued_or_in_line.cancel()
    gate.open()
    outcomes = await asyncio.gather(held, *appends, return_exceptions=True)
    await store.audit.append(entry())
    verdict = await store.audit.verify()

    assert sum(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes) == 3
    assert verdict.is_intact
    assert verdict.checked == 21


async def test_closing_commits_what_still_waits(path: Path, entry: Make) -> None:
    store = await SqliteStore.open(path)
    appends = [asyncio.ensure_future(store.audit.append(entry())) for _ in range(20)]
    await asyncio.sleep(0)
    await store.aclose()
    await asyncio.gather(*appends)

    async with aclosing(await SqliteStore.open(path)) as again:
        assert (await again.audit.verify()).checked == 20


async def test_closing_under_cancellation_commits_what_still_waits(path: Path, entry: Make) -> None:
    store = await SqliteStore.open(path)
    with anyio.CancelScope() as scope:
        async with aclosing(store):
            append = store.audit.append(entry())
            scope.cancel()
            await anyio.sleep(10)
    await append

    assert not store._writer._thread.is_alive()
    async with aclosing(await SqliteStore.open(path)) as again:
        assert await again.audit.newest() == 1


async def test_a_closed_store_takes_nothing(path: Path, entry: Make) -> None:
    store = await SqliteStore.open(path)
    await store.aclose()
    await store.aclose()

    with pytest.raises(GatewayError, match="closed"):
        await store.audit.append(entry())
    with pytest.raises(GatewayError, match="closed"):
        await store.audit.newest()


@pytest.mark.parametrize("error", [StaleLease(), ZeroDivisionError(), StopIteration(), SystemExit()])
async def test_a_failing_job_fails_alone(path: Path, entry: Make, error: BaseException) -> None:
    def fail() -> Script[None]:
        yield Statement("UPDATE audit_head SET hash = 'half done'")
        raise error

    async with aclosing(await SqliteStore.open(path)) as store:
        gate, held = await close_the_gate(store)
        before = asyncio.ensure_future(store.audit.append(entry()))
        failing = asyncio.ensure_future(store.scripts.run(fail, durable=False))
        after = asyncio.ensure_future(store.scripts.run(one, durable=False))
        gate.open()
        outcomes = await asyncio.gather(held, before, failing, after, return_exceptions=True)
        verdict = await store.audit.verify()

    assert outcomes[1] is None
    assert isinstance(outcomes[2], Exception)
    assert isinstance(outcomes[3], int)
    assert (verdict.is_intact, verdict.checked) == (True, 1)


async def test_after_a_failed_commit_every_caller_is_told_and_the_next_one_served(path: Path, entry: Make) -> None:
    def fill_the_disk() -> Script[None]:
        ((pages,),) = yield Statement("PRAGMA page_count")
        yield Statement(f"PRAGMA max_page_count = {pages}")

    def free_the_disk() -> Script[None]:
        yield Statement("PRAGMA max_page_count = 1000000")

    async with aclosing(await SqliteStore.open(path, durable=True)) as store:
        await store.scripts.run(fill_the_disk)
        large = [store.audit.append(entry(caller="x" * 50_000)) for _ in range(3)]
        outcomes = await asyncio.gather(*large, return_exceptions=True)
        await store.scripts.run(free_the_disk)
        await store.audit.append(entry())
        verdict = await store.audit.verify()

    assert [type(outcome) for outcome in outcomes] == [GatewayError] * 3
    assert "disk is full" in str(outcomes[0])
    assert (verdict.is_intact, verdict.checked) == (True, 1)


async def test_a_lock_that_is_never_released_is_an_error_not_a_hang(path: Path, entry: Make) -> None:
    async with aclosing(await SqliteStore.open(path, busy_timeout_s=0.05)) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        outcomes = await asyncio.gather(*(store.audit.append(entry()) for _ in range(3)), return_exceptions=True)
        other.execute("ROLLBACK")
        other.close()
        await store.audit.append(entry())

    assert all("held by another process" in str(outcome) for outcome in outcomes)


async def test_reading_does_not_wait_for_the_writer(store: SqliteStore, entry: Make) -> None:
    await store.audit.append(entry())
    gate, held = await close_the_gate(store)
    with anyio.fail_after(20):
        seen = await asyncio.gather(*(store.audit.newest() for _ in range(10)))
    gate.open()
    await held

    assert seen == [1] * 10


async def test_a_reader_cannot_write(store: SqliteStore) -> None:
    def delete() -> Script[None]:
        yield Statement("DELETE FROM migrations")

    with pytest.raises(GatewayError, match="may not be written to"):
        await store.scripts.read(delete)


def test_a_loop_that_ends_without_closing_the_store_does_not_hang(path: Path, entry: Make) -> None:
    async def forget_to_close() -> Any:
        store = await SqliteStore.open(path)
        await store.audit.append(entry())
        store.audit.append(entry())
        return store

    store = asyncio.run(forget_to_close())
    store._writer._for_thread.put(None)
    store._writer._thread.join(5)

    assert store._writer._thread.daemon
    assert not store._writer._thread.is_alive()
