"""A store moves to another place: everything, proven, and never over what is somebody else's."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from importlib.resources import files
from pathlib import Path

import pytest

from tests.postgres import Postgres
from tests.store.conftest import url_of
from toolpost.audit import AuditEntry, AuditFilter
from toolpost.base.ids import CallerId
from toolpost.contracts.errors import BadConfiguration
from toolpost.manifest import bundled_parts
from toolpost.store import Store, open_store
from toolpost.store.copying import CopyResult, copy_store
from toolpost.store.known_tools import KnownServer
from toolpost.store.migrate import read_migrations
from toolpost.store.part_migrations import find_part_tables, migrate_part
from toolpost.store.scripts import Script, Statement
from toolpost.store.tables import AUDIT, KEYS, NOT_COPIED, TABLES

pytestmark = [pytest.mark.anyio, pytest.mark.wire]
Make = Callable[..., AuditEntry]
TOOL = {"name": "log \0 🦉", "inputSchema": {"type": "object"}}


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(params=["sqlite to postgres", "postgres to sqlite", "postgres to postgres", "sqlite to sqlite"])
def ways(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """From where, to where."""
    source, _, target = request.param.partition(" to ")
    return url_of(source, request, tmp_path / "source.db"), url_of(target, request, tmp_path / "target.db")


async def filled(store: Store, entry: Make, count: int = 2_500) -> None:
    await asyncio.gather(*(store.audit.append(entry(caller=f"nul \0 and \x1a {n}")) for n in range(count)))
    for number in range(30):
        await store.known_tools.remember(f"server-{number}", [TOOL] * (number % 3), f"{number}.0")
        await store.seen.remember(CallerId(f"caller {number % 2}"), f"session {number}", {"git__log": "x"})


async def copied(source: str, target: str, *, dry_run: bool = False) -> CopyResult:
    async with open_store(source) as one, open_store(target) as other:
        return await copy_store(one, other, progress=lambda *_: None, dry_run=dry_run)


async def everything_in(url: str) -> dict[str, object]:
    async with open_store(url) as store:
        assert (await store.audit.verify()).is_intact
        return {table.name: await store.tables.up_to(table, None, None) for table in (AUDIT, *TABLES)}


@pytest.mark.wire
async def test_everything_is_copied_and_can_be_used(ways: tuple[str, str], entry: Make) -> None:
    source, target = ways
    async with open_store(source) as store:
        await filled(store, entry)
    done = await copied(source, target)

    assert await everything_in(target) == await everything_in(source)
    assert (done.rows["audit"], done.written["audit"], done.written["known_tools"]) == (2_500, 2_500, 30)
    async with open_store(target) as store:
        await store.audit.append(entry())
        assert await store.known_tools.recall("server-2") == KnownServer(definitions=[TOOL, TOOL], build="2.0")
        assert (await store.audit.verify()).checked == 2_501


async def test_keys_are_copied_over_those_that_the_target_made(ways: tuple[str, str]) -> None:
    source, target = ways
    async with open_store(source) as one, open_store(target) as other:
        key = await one.keys.of("signing:gateway")
        assert await other.keys.of("signing:gateway") != key
    await copied(source, target)

    async with open_store(target) as other:
        assert await other.keys.of("signing:gateway") == key


async def test_tables_of_parts_are_copied_too(ways: tuple[str, str]) -> None:
    source, target = ways
    for url in ways:
        async with open_store(url) as store:
            kind = (await store.facts()).kind
            await store.scripts.run(partial(_make_part_tables, kind))
    async with open_store(source) as store:
        await store.scripts.run(_fill_part_tables)
    done = await copied(source, target)

    assert (done.rows["part_pages"], done.rows["the_part_books"]) == (2, 1)
    async with open_store(target) as store:
        await store.scripts.run(lambda: _add_book("c"))
        books, pages = await find_part_tables(store)
        assert await store.tables.up_to(books, None, None) == [(1, "b"), (2, "c")]
        assert await store.tables.up_to(pages, None, None) == [(1, 1, None), (1, 2, "two")]


def _make_part_tables(kind: str) -> Script[None]:
    # Neither the names nor the columns are in the order in which they can be copied.
    numbered = "INTEGER PRIMARY KEY" if kind == "sqlite" else "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    yield Statement(f"CREATE TABLE the_part_books (title TEXT, book {numbered})")
    yield Statement(
        "CREATE TABLE part_pages (text TEXT, page BIGINT, book BIGINT REFERENCES the_part_books (book),"
        " PRIMARY KEY (book, page))"
    )


def _fill_part_tables() -> Script[None]:
    yield from _add_book("b")
    yield Statement("INSERT INTO part_pages VALUES (NULL, 1, 1), ('two', 2, 1)")


def _add_book(title: str) -> Script[None]:
    yield Statement("INSERT INTO the_part_books (title) VALUES (?1)", (title,))


async def test_what_is_new_is_copied_the_next_time(ways: tuple[str, str], entry: Make) -> None:
    source, target = ways
    async with open_store(source) as store:
        await filled(store, entry, 20)
    await copied(source, target)
    async with open_store(source) as store:
        await filled(store, entry, 5)
        await store.known_tools.remember("another", [])
    done = await copied(source, target)
    again = await copied(source, target)

    assert (done.written["audit"], set(again.written.values())) == (5, {0})
    assert await everything_in(target) == await everything_in(source)


async def test_an_interrupted_copy_is_gone_on_with(ways: tuple[str, str], entry: Make) -> None:
    source, target = ways
    async with open_store(source) as store:
        await filled(store, entry)

    def fall_over(table: str, done: int, _total: int) -> None:
        if table == "audit" and done >= 1_000:
            raise KeyboardInterrupt

    async with open_store(source) as one, open_store(target) as other:
        with pytest.raises(KeyboardInterrupt):
            await copy_store(one, other, progress=fall_over)
        assert (await other.audit.verify()).checked == 1_000
    done = await copied(source, target)

    assert done.written["audit"] == 1_500
    assert await everything_in(target) == await everything_in(source)


async def test_a_dry_run_changes_nothing(ways: tuple[str, str], entry: Make) -> None:
    source, target = ways
    async with open_store(source) as store:
        await filled(store, entry, 20)
    done = await copied(source, target, dry_run=True)

    assert (done.written["audit"], done.written["known_tools"]) == (20, 30)
    assert await everything_in(target) == {table.name: [] for table in (AUDIT, *TABLES)}


@pytest.mark.parametrize("theirs", [1, 20, 30])
async def test_another_audit_is_not_overwritten(ways: tuple[str, str], entry: Make, theirs: int) -> None:
    source, target = ways
    async with open_store(source) as store:
        await filled(store, entry, 20)
    async with open_store(target) as store:
        await asyncio.gather(*(store.audit.append(entry(caller="eve")) for _ in range(theirs)))
    before = await everything_in(target)
    with pytest.raises(BadConfiguration, match="already has an audit") as caught:
        await copied(source, target)

    assert "nothing was changed" in (caught.value.hint or "")
    assert await everything_in(target) == before


async def test_other_rows_are_not_overwritten(ways: tuple[str, str], entry: Make) -> None:
    source, target = ways
    async with open_store(source) as store:
        await filled(store, entry, 20)
    async with open_store(target) as store:
        await store.known_tools.remember("server-3", [])
    before = await everything_in(target)
    with pytest.raises(BadConfiguration, match="already has rows in `known_tools`"):
        await copied(source, target)

    assert await everything_in(target) == before


async def test_a_broken_chain_is_not_copied(url: str, tamper: Callable[..., None], tmp_path: Path, entry: Make) -> None:
    async with open_store(url) as store:
        await filled(store, entry, 20)
    tamper("UPDATE audit SET caller = 'eve' WHERE seq = 7")
    with pytest.raises(BadConfiguration, match="broken at entry 7"):
        await copied(url, f"sqlite:{tmp_path / 'target.db'}")

    async with open_store(tmp_path / "target.db") as store:
        assert await store.audit.newest() == 0


async def test_a_source_that_is_written_to_meanwhile_is_noticed(ways: tuple[str, str], entry: Make) -> None:
    source, target = ways
    late: list[threading.Thread] = []

    async def append() -> None:
        async with open_store(source) as another:
            await another.audit.append(entry())

    def append_meanwhile(table: str, done: int, _total: int) -> None:
        if table == "audit" and done == 20 and not late:
            late.append(threading.Thread(target=asyncio.run, args=(append(),)))
            late[0].start()
            late[0].join()

    async with open_store(source) as one, open_store(target) as other:
        await filled(one, entry, 20)
        with pytest.raises(BadConfiguration, match="was written to while it was copied"):
            await copy_store(one, other, progress=append_meanwhile)
    done = await copied(source, target)

    assert done.written["audit"] == 1


async def test_both_kinds_of_store_have_the_same_tables_and_all_are_copied(postgres: Postgres, path: Path) -> None:
    url = postgres.new_url()
    async with open_store(url), open_store(path):
        pass
    schema = url.rpartition("=")[2]
    listed = postgres.sql(
        url,
        "SELECT table_name || '.' || column_name || ' ' || data_type FROM information_schema.columns"
        f" WHERE table_schema = '{schema}'",
    )
    kinds = {"bigint": "INTEGER", "text": "TEXT", "double precision": "REAL", "bytea": "BLOB"}
    in_postgres = {(name, kinds[kind]) for name, _, kind in (line.partition(" ") for line in listed.splitlines())}
    with closing(sqlite3.connect(path)) as connection:
        in_sqlite = set(
            connection.execute(
                "SELECT m.name || '.' || c.name, c.type FROM sqlite_schema m, pragma_table_info(m.name) c"
                " WHERE m.type = 'table'"
            )
        )
    in_list = {f"{table.name}.{column}" for table in (AUDIT, KEYS, *TABLES) for column in table.columns}

    assert in_postgres == in_sqlite
    assert in_list == {name for name, _ in in_sqlite if name.partition(".")[0] not in NOT_COPIED}


async def test_both_kinds_of_store_have_the_same_tables_of_parts(postgres: Postgres, path: Path) -> None:
    found = []
    for url in (f"sqlite:{path}", postgres.new_url()):
        async with open_store(url) as store:
            for part in bundled_parts():
                if part.migrations is not None:
                    await migrate_part(store, url, part.name, part.migrations)
            found.append({table.name: (table.key, sorted(table.columns)) for table in await find_part_tables(store)})

    assert found[0] == found[1]
    assert {"bus_tasks", "threads", "trail_records", "approval_rounds"} <= found[0].keys()


def test_both_kinds_of_store_have_the_same_migrations() -> None:
    parts = [part.migrations for part in bundled_parts() if part.migrations is not None]
    for folder in (files("toolpost.store.migrations"), *map(files, parts)):
        steps = [
            [(step.number, step.name) for step in read_migrations(folder.joinpath(kind))]
            for kind in ("sqlite", "postgres")
        ]
        assert steps[0] == steps[1]
        assert [number for number, _ in steps[0]] == list(range(1, len(steps[0]) + 1))


async def test_the_copied_audit_is_searched_alike(ways: tuple[str, str], entry: Make) -> None:
    source, target = ways
    async with open_store(source) as store:
        for tool in ("git__log", "git__l%g", "git__l_g", "GIT__log", "gitx_log"):
            await store.audit.append(entry(tool=tool))
    await copied(source, target)
    found = []
    for url in ways:
        async with open_store(url) as store:
            found.append(
                [
                    [record.entry.tool for record in await store.audit.entries(AuditFilter(tool=glob), limit=10)]
                    for glob in ("git__*", "git__l%g", "git__l_?", "*log", "\\*")
                ]
            )

    assert found[0] == found[1]
    assert found[0][0] == ["git__log", "git__l%g", "git__l_g"]
