"""A database file that fails: full, locked, damaged, somebody else's. Each is told in words, and nothing is lost silently."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from toolpost.audit import AuditEntry, AuditFilter
from toolpost.contracts.errors import BadConfiguration, GatewayError
from toolpost.store import open_store
from toolpost.store.scripts import Script, Statement
from toolpost.store.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio
Make = Callable[..., AuditEntry]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


def synchronous() -> Script[int]:
    ((mode,),) = yield Statement("PRAGMA synchronous")
    return int(mode)


async def test_only_a_group_that_asks_for_it_waits_for_the_disk(path: Path, entry: Make) -> None:
    async with aclosing(await SqliteStore.open(path)) as store:
        one_by_one = [await store.scripts.run(synchronous, durable=durable) for durable in (False, True, False)]
        together = await asyncio.gather(
            store.scripts.run(synchronous, durable=False), store.scripts.run(synchronous), store.audit.append(entry())
        )
        after = await store.scripts.run(synchronous, durable=False)

    assert one_by_one == [1, 2, 1]
    assert list(together[:2]) == [1, 2]
    assert after == 1


async def test_a_store_that_is_full_stays_so(path: Path) -> None:
    async with aclosing(await SqliteStore.open(path, durable=True)) as store:
        assert [await store.scripts.run(synchronous, durable=durable) for durable in (False, True, False)] == [2, 2, 2]


def _damage_last_records(path: Path) -> None:
    data, page, leaf_of_table = path.read_bytes(), 4_096, 0x0D
    pages = [data[at : at + page] for at in range(0, len(data), page)]
    last = max(at for at, each in enumerate(pages) if each[0] == leaf_of_table and b"x" * 1_000 in each)
    with path.open("r+b") as file:
        file.seek(last * page)
        file.write(b"\xff" * page)


async def test_a_damaged_page_is_told_and_the_rest_can_be_read(path: Path, entry: Make) -> None:
    async with open_store(path) as store:
        await asyncio.gather(*(store.audit.append(entry(caller="x" * 1_000)) for _ in range(500)))
    _damage_last_records(path)

    async with open_store(path) as store:
        with pytest.raises(GatewayError, match="is damaged") as caught:
            await store.audit.verify()
        first = await store.audit.entries(AuditFilter(), limit=10)

    assert "backup" in (caught.value.hint or "")
    assert [record.seq for record in first] == list(range(1, 11))


async def test_a_foreign_database_is_refused_and_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(BadConfiguration, match="tables that Toolpost did not create"):
        async with open_store(path):
            pass

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("bookmarks",)]


@pytest.mark.wire
@pytest.mark.skipif(sys.platform == "win32", reason="limits are POSIX's")
def test_a_disk_that_is_full_is_told_and_what_was_acknowledged_stays(path: Path) -> None:
    # A limit on the size of files is what a full disk is to a process.
    fill = (
        "import asyncio, json, resource, signal, sys\n"
        "from msgspec.structs import replace\n"
        "from toolpost.audit import AuditEntry\n"
        "from toolpost.store import open_store\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "entry = AuditEntry(at_utc='t', call_id='', trace_id='', caller='x' * 5000, tool='t', source='s', contract='',\n"
        "    schema_version=1, tooling_version='', arguments='', outcome='ok', code=None, duration_ms=1.0, result=None)\n"
        "async def main():\n"
        "    async with open_store(sys.argv[1]) as store:\n"
        "        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))\n"
        "        kept = 0\n"
        "        try:\n"
        "            for kept in range(10_000):\n"
        "                await store.audit.append(replace(entry, call_id=str(kept)))\n"
        "        except Exception as error:\n"
        "            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "            await store.audit.append(replace(entry, call_id='after'))\n"
        "            print(json.dumps([kept, type(error).__name__, str(error)]))\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", fill, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    kept, kind, words = json.loads(done.stdout)

    async def look() -> tuple[int, bool]:
        async with open_store(path) as store:
            return await store.audit.newest(), (await store.audit.verify()).is_intact

    assert kind == "GatewayError"
    assert "disk" in words or "could not be read or written" in words
    assert asyncio.run(look()) == (kept + 1, True)
