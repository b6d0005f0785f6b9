"""Entries that come alone are journaled first and committed together: none lost, none twice, also when a process is killed."""

import errno
import os
import subprocess
import zlib
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from tests.store.test_processes import call_ids, start
from tests.waiting import until
from toolpost.audit import AuditEntry, AuditFilter
from toolpost.contracts.errors import GatewayError
from toolpost.store import open_store
from toolpost.store.sqlite import journal
from toolpost.store.sqlite.journal import SIZE_BYTES
from toolpost.store.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio
Make = Callable[..., AuditEntry]
EVERYTHING = AuditFilter()

__all__ = ["start"]


@pytest.fixture
def url(path: Path) -> str:
    """Only a file has something beside it."""
    return f"sqlite:{path}"


def journals_beside(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}-notes-*"))


async def test_what_came_alone_is_read_back_at_once_in_order_with_the_rest(path: Path, entry: Make) -> None:
    async with open_store(path) as store:
        for number in range(50):
            await store.audit.append(entry(), is_only_call=number % 3 != 0)
        found = [record.entry.call_id for record in await store.audit.entries(EVERYTHING, limit=100)]
        verdict = await store.audit.verify()

    assert found == [f"call-{n}" for n in range(1, 51)]
    assert verdict.is_intact


async def test_those_that_come_one_after_another_share_a_commit(
    path: Path, entry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "COMMIT_S", 60)
    async with aclosing(await SqliteStore.open(path)) as store:
        for _ in range(200):
            await store.audit.append(entry(), is_only_call=True)
        newest = await store.audit.newest()
        commits = store.commits

    assert newest == 200
    assert commits <= 2


async def test_a_log_that_closes_right_after_a_commit_leaves_no_journal(path: Path, entry: Make) -> None:
    store = await SqliteStore.open(path)
    await store.audit.append(entry(), is_only_call=True)
    flushed = anyio.Event()

    async def flush() -> None:
        await store.audit.flush()
        flushed.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(flush)
        while not flushed.is_set() and store.commits == 0:
            await anyio.sleep(0)
        await store.aclose()

    assert journals_beside(path) == []


async def test_a_reader_does_not_wait_for_entries_that_come_after_it(path: Path, entry: Make) -> None:
    async with open_store(path) as store:
        is_over = False

        async def load() -> None:
            while not is_over:
                await store.audit.append(entry())

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(load)
            await until(lambda: store.audit.commits > 1)
            journaled = entry()
            await store.audit.append(journaled, is_only_call=True)
            with anyio.fail_after(20):
                (found,) = await store.audit.entries(AuditFilter(call_id=journaled.call_id), limit=10)
            is_over = True

    assert found.entry == journaled


async def test_closing_commits_the_journal_and_leaves_no_file(path: Path, entry: Make) -> None:
    async with open_store(path) as store:
        await store.audit.append(entry(), is_only_call=True)
        assert len(journals_beside(path)) == 1

    assert journals_beside(path) == []
    assert await call_ids(str(path)) == ["call-1"]


async def test_what_a_killed_process_has_journaled_is_recovered(
    path: Path, start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    acknowledged = []
    for name in ("a", "b"):
        with start(name, 1_000_000, "alone") as process:
            assert process.stdout
            acknowledged += [process.stdout.readline().strip() for _ in range(300)]
            process.kill()
            acknowledged += [line.strip() for line in process.stdout if line.endswith("\n")]

    ids = await call_ids(str(path))
    assert set(acknowledged) <= set(ids)
    assert len(ids) == len(set(ids))
    assert journals_beside(path) == []


async def test_what_is_on_record_already_is_not_recovered_again_nor_half_a_line(path: Path, entry: Make) -> None:
    known, missing, torn = entry(), entry(), entry()
    async with open_store(path) as store:
        await store.audit.append(known)
    left = [b"%08x %b\n" % (zlib.crc32(line), line) for line in map(msgspec.json.encode, (known, torn, missing))]
    # Copied half over an older line of the same length.
    left[1] = left[1][:60] + left[0][60:]
    path.with_name(f"{path.name}-notes-1-abc").write_bytes(b"".join(left) + b"\0" + left[2])

    assert await call_ids(str(path)) == [known.call_id, missing.call_id]
    assert journals_beside(path) == []


async def test_a_full_journal_is_committed_and_started_again(
    path: Path, entry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "COMMIT_S", 60)
    async with aclosing(await SqliteStore.open(path)) as store:
        for _ in range(2_000):
            await store.audit.append(entry(), is_only_call=True)
        commits = store.commits

        assert await store.audit.newest() == 2_000
        assert 0 < commits < 10
        assert journals_beside(path)[0].stat().st_size == SIZE_BYTES


async def test_without_space_for_a_journal_there_is_none(
    path: Path, entry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", _no_space)
    async with open_store(path) as store:
        await store.audit.append(entry(), is_only_call=True)

        assert journals_beside(path) == []
        assert await call_ids(str(path)) == ["call-1"]


def _no_space(*_args: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_the_journal_of_a_living_process_is_left_alone(
    path: Path, entry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "COMMIT_S", 60)
    async with open_store(path) as store:
        await store.audit.append(entry(), is_only_call=True)

        assert await call_ids(str(path)) == []

        await store.audit.newest()
        assert await call_ids(str(path)) == ["call-1"]


async def test_a_store_that_fails_later_keeps_the_journal_and_adds_no_more(
    path: Path, entry: Make, tamper: Callable[..., None]
) -> None:
    async with open_store(path) as store:
        await store.audit.append(entry())
        tamper("DELETE FROM audit_head")
        await store.audit.append(entry(), is_only_call=True)
        with pytest.raises(GatewayError):
            await store.audit.append(entry())
        with pytest.raises(GatewayError):
            await store.audit.append(entry(), is_only_call=True)

    (left,) = journals_beside(path)
    assert b'"call-2"' in left.read_bytes()


@pytest.mark.parametrize("change", [{"schema_version": "1"}, {"outcome": "perhaps"}, {"code": 5}])
async def test_a_malformed_entry_that_comes_alone_is_refused(path: Path, entry: Make, change: dict[str, Any]) -> None:
    async with open_store(path) as store:
        with pytest.raises(GatewayError, match="malformed"):
            await store.audit.append(entry(**change), is_only_call=True)
        await store.audit.append(entry(), is_only_call=True)

        assert await store.audit.newest() == 1
