"""Opening a store: by URL, new or old, and what a person reads when it cannot be opened."""

import asyncio
import os
import sqlite3
import stat
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from toolpost.audit import AuditEntry
from toolpost.contracts.errors import BadConfiguration
from toolpost.store import open_store
from toolpost.store.migrate import Migration, list_migrations
from toolpost.store.sqlite.connection import migrate

pytestmark = pytest.mark.anyio
Make = Callable[..., AuditEntry]


async def refusal_of(url: str | Path) -> BadConfiguration:
    with pytest.raises(BadConfiguration) as caught:
        async with open_store(url):
            pass
    assert caught.value.hint
    return caught.value


async def test_a_new_store_is_for_its_owner_alone(tmp_path: Path, entry: Make) -> None:
    path = tmp_path / "new" / "store.db"
    async with open_store(path) as store:
        await store.audit.append(entry())
        modes = {file.name.split("notes")[0]: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}

    assert modes == dict.fromkeys(("store.db", "store.db-wal", "store.db-shm", "store.db-"), 0o600)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_an_absolute_url_and_a_relative_one_name_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: Make
) -> None:
    monkeypatch.chdir(tmp_path)
    newest = 0
    for url in ("sqlite:a folder/s?#%.db", f"sqlite://{tmp_path}/a folder/s?#%.db", "a folder/s?#%.db"):
        async with open_store(url) as store:
            await store.audit.append(entry())
            newest = await store.audit.newest()

    assert newest == 3


async def test_the_file_stays_the_same_when_the_folder_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_store("sqlite:store.db") as store:
        monkeypatch.chdir("/")
        assert await store.audit.newest() == 0


@pytest.mark.parametrize("url", ["mysql://host/db", "", "sqlite:"])
async def test_an_unknown_url_is_refused(url: str) -> None:
    assert "unknown kind of store" in (await refusal_of(url)).message


async def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("a letter to a friend, long enough to have a header\n" * 100)

    assert "is not a database" in (await refusal_of(path)).message
    assert path.read_text().startswith("a letter")


async def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert "cannot be opened" in (await refusal_of(tmp_path / "file" / "store.db")).message


async def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    assert "cannot be opened" in (await refusal_of(tmp_path)).message


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write anywhere")
async def test_a_folder_that_may_not_be_written_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)

    assert "Permission denied" in (await refusal_of(tmp_path / "store.db")).message


async def test_a_damaged_database_is_refused(path: Path) -> None:
    async with open_store(path):
        pass
    content = bytearray(path.read_bytes())
    content[100:] = b"\xff" * (len(content) - 100)
    path.write_bytes(content)

    assert "is damaged" in (await refusal_of(path)).message


async def test_migrations_run_once(path: Path) -> None:
    ledgers = []
    for _ in range(2):
        async with open_store(path):
            pass
        with closing(sqlite3.connect(path)) as connection:
            ledgers.append(connection.execute("SELECT * FROM migrations").fetchall())

    assert ledgers[0] == ledgers[1]
    assert [(number, name) for number, name, *_ in ledgers[0]] == [
        (migration.number, migration.name) for migration in list_migrations("sqlite")
    ]


async def test_many_may_open_a_new_store_at_once(path: Path, entry: Make) -> None:
    async def open_and_append() -> None:
        async with open_store(path) as store:
            await store.audit.append(entry())

    await asyncio.gather(*(open_and_append() for _ in range(8)))

    async with open_store(path) as store:
        assert (await store.audit.verify()).checked == 8


async def test_a_database_of_a_newer_toolpost_is_refused(path: Path) -> None:
    async with open_store(path):
        pass
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO migrations VALUES (999, 'later', 'x', 'then')")

    assert "written by a newer Toolpost: it has migration 999" in (await refusal_of(path)).message


async def test_a_migration_that_was_edited_is_refused(path: Path) -> None:
    async with open_store(path):
        pass
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE migrations SET digest = 'other' WHERE number = 1")

    assert "another migration 1 (kernel)" in (await refusal_of(path)).message


def test_a_failing_migration_leaves_nothing_behind() -> None:
    steps = [
        Migration(number=1, name="fine", sql="CREATE TABLE fine (x);"),
        Migration(number=2, name="broken", sql="CREATE TABLE half (x);\nCREATE NONSENSE;"),
    ]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        with pytest.raises(sqlite3.OperationalError):
            migrate(connection, steps)

        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == []


def test_migrations_are_numbered_without_gaps() -> None:
    numbers = [migration.number for migration in list_migrations("sqlite")]

    assert numbers == list(range(1, len(numbers) + 1))
