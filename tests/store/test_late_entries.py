"""A disk that is full for a while: calls that were answered, or had an effect, are in the audit as soon as it has room."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec
import pytest

from tests.hostile.attacks import attack
from tests.store.test_call_journal import draft
from tests.upstreams.behind import HOSTILE
from tests.waiting import until
from tests.ways import BEHAVIOURS, IN_MEMORY, STATELESS, Way, plugin_of
from toolpost.app import open_app
from toolpost.audit import AuditEntry, AuditFilter, AuditRecord
from toolpost.contracts.errors import GatewayError
from toolpost.settings.model import StoreSettings
from toolpost.store import Store, call_journal, late_entries, open_store
from toolpost.store.call_journal import CallJournal
from toolpost.store.scripts import Script, Statement
from toolpost.testing import error_of
from toolpost.upstreams.spec import ServerSpec

pytestmark = pytest.mark.anyio
Make = Callable[..., AuditEntry]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_entries, "RETRY_S", 0.02)


def fill_the_disk() -> Script[None]:
    ((pages,),) = yield Statement("PRAGMA page_count")
    yield Statement(f"PRAGMA max_page_count = {pages}")


async def free_the_disk(store: Store) -> None:
    """Make room again. On a full disk SQLite ends a transaction with all its scripts, so that this may fail with late entries."""

    def allow_pages() -> Script[None]:
        yield Statement("PRAGMA max_page_count = 1000000")

    async def is_allowed() -> bool:
        with suppress(GatewayError):
            await store.scripts.run(allow_pages)
            return True
        return False

    await until(is_allowed)


async def records_of(store: Store, holds: Callable[[list[AuditRecord]], bool]) -> list[AuditRecord]:
    """Wait until the records are as they should be."""
    with anyio.fail_after(60):
        while not holds(found := await store.audit.entries(AuditFilter(), limit=1_000)):
            await anyio.sleep(0.01)
    return found


async def append_until_refused(store: Store, entry: Make) -> list[str]:
    """Append entries that come alone until one is refused; return the ids of the acknowledged ones."""
    acknowledged: list[str] = []
    while True:
        one = entry(caller="x" * 2_000)
        try:
            await store.audit.append(one, is_only_call=True)
        except GatewayError as error:
            assert "full" in str(error)  # noqa: PT017 (any number of others are not refused)
            return acknowledged
        acknowledged.append(one.call_id)
        await anyio.sleep(0)


@attack(
    "operator",
    "lets the disk of the store fill up while calls are answered",
    "their entries are in the audit as soon as there is room",
)
async def test_acknowledged_entries_are_written_once_there_is_room(path: Path, entry: Make) -> None:
    async with open_store(path) as store:
        await store.audit.append(entry())
        await store.scripts.run(fill_the_disk)
        acknowledged = await append_until_refused(store, entry)
        await free_the_disk(store)
        found = await records_of(store, lambda records: len(records) > len(acknowledged))
        # The journal is in use again: an entry that comes alone waits for no commit.
        commits = store.audit.commits
        await store.audit.append(entry(), is_only_call=True)
        assert store.audit.commits == commits
        verdict = await store.audit.verify()

    assert sorted(record.entry.call_id for record in found[1:]) == sorted(acknowledged)
    assert (verdict.is_intact, verdict.checked) == (True, len(found) + 1)
    assert list(path.parent.glob("*-notes-*")) == []


async def test_a_disk_that_stays_full_leaves_the_journal_to_the_next_start(path: Path, entry: Make) -> None:
    async with open_store(path) as store:
        await store.scripts.run(fill_the_disk)
        acknowledged = await append_until_refused(store, entry)
    assert len(list(path.parent.glob("*-notes-*"))) == 1
    async with open_store(path) as store:
        found = await store.audit.entries(AuditFilter(), limit=1_000)

    assert sorted(record.entry.call_id for record in found) == sorted(acknowledged)


async def test_an_entry_that_finds_room_meanwhile_comes_before_those_in_the_journal(path: Path, entry: Make) -> None:
    large, small = [entry(caller="x" * 2_000) for _ in range(100)], entry()
    async with open_store(path) as store:
        await store.scripts.run(fill_the_disk)
        for one in large:
            await store.audit.append(one, is_only_call=True)
        await store.audit.flush()
        await store.audit.append(small, is_only_call=True)
    async with open_store(path) as store:
        found = await store.audit.entries(AuditFilter(), limit=1_000)
        verdict = await store.audit.verify()

    assert [record.entry.call_id for record in found] == [one.call_id for one in (small, *large)]
    assert verdict.is_intact


@pytest.mark.wire
@pytest.mark.parametrize("tool", ["does__echo", "does__stray", "up__echo"])
async def test_a_call_that_could_not_be_recorded_is_recorded_later(tool: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=f"sqlite:{path}"))
    up = ServerSpec(name="up", command=(sys.executable, "-S", "-E", str(HOSTILE), "--version", "2025-11-25"))
    arguments = {"kind": "exit"} if tool == "does__stray" else {"text": "x" * 100}
    async with (
        open_app(config, plugins=[plugin_of(BEHAVIOURS)], bundled=False, servers=[up]) as app,
        Way("memory", STATELESS).client_of(app) as client,
    ):
        await client.call_tool(tool, arguments)
        await app.store.audit.newest()
        await app.store.scripts.run(fill_the_disk)
        refused = 0
        with anyio.fail_after(60):
            while refused < 3:  # those before have found room in the pages that there are, or in the journal
                answer = await client.call_tool(tool, arguments)
                refused += (
                    "disk is full" in str(answer) or error_of(answer)["code"] == "INTERNAL" if answer.is_error else 0
                )
        made = app.gateway.admitted
        assert len(await app.store.audit.entries(AuditFilter(), limit=10_000)) < made
        await free_the_disk(app.store)
        found = await records_of(app.store, lambda records: len(records) == made)
        journals = list(tmp_path.glob("*-calls-*"))

    outcomes = {record.entry.outcome for record in found}
    assert outcomes == ({"error"} if tool == "does__stray" else {"ok"}), "as they ended, and not as lost"
    assert len({record.entry.call_id for record in found}) == made
    assert len(journals) == 1
    assert list(tmp_path.glob("*-calls-*")) == [], "no call is left in the journal"


def test_calls_are_journaled_again_once_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = CallJournal(tmp_path / "calls-")
    now = [100.0]
    with monkeypatch.context() as full:
        full.setattr(os, "posix_fallocate", _no_space)
        full.setattr(time, "monotonic", lambda: now[0])
        assert journal.enter(draft(0)) is None
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert journal.enter(draft(1)) is None, "it is not tried for every call"
    now[0] += call_journal.RETRY_S
    slot = journal.enter(draft(2))
    assert slot is not None
    journal.leave(slot)
    journal.close()


def _no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB, where this user may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("only root may mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.wire
async def test_a_file_system_that_is_really_full(disk: Path, entry: Make) -> None:
    ballast = disk / "ballast"
    async with open_store(disk / "store.db") as store:
        await store.audit.append(entry())
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4_096)):
                pass
        acknowledged = await append_until_refused(store, entry)
        ballast.unlink()
        found = await records_of(store, lambda records: len(records) > len(acknowledged))
        verdict = await store.audit.verify()

    assert sorted(record.entry.call_id for record in found[1:]) == sorted(acknowledged)
    assert verdict.is_intact
