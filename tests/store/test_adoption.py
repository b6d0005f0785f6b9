"""Stores of earlier commits open, with all their rows: `earlier/` has dumps of stores that gateways of these commits wrote."""

import json
import lzma
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

import toolpost
from tests.hostile.attacks import attack
from tests.postgres import Postgres
from tests.store.conftest import url_of
from tests.ways import ENVELOPE, STATELESS
from toolpost.app import open_app, open_http
from toolpost.contracts.errors import BadConfiguration
from toolpost.manifest import bundled_parts
from toolpost.settings import Config
from toolpost.settings.callers import CallerSettings
from toolpost.settings.model import HttpSettings, PluginSettings, StoreSettings
from toolpost.store import Store, adoption, open_store
from toolpost.store.migrate import list_migrations, read_migrations
from toolpost.store.part_migrations import find_part_tables, migrate_part
from toolpost.store.scripts import Script, Statement
from toolpost.store.tables import AUDIT, KEYS, NOT_COPIED, TABLES

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

DUMPS = Path(__file__).with_name("earlier")
COMMITS = ("502978a1", "ffe55334")
TASKS = {"t-done": "done", "t-blocked": "blocked", "t-dead": "dead", "t-queued": "queued", "t-waiting": "waiting"}
ANN = {"Authorization": "Bearer token-of-ann", "MCP-Protocol-Version": STATELESS}

Change = Callable[..., None]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=COMMITS)
def commit(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(kind: str, commit: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store as this commit has left it. Its MCP tasks, which are stored for an hour, are kept for the tests."""
    url = url_of(kind, request, tmp_path / "earlier.db")
    dump = lzma.decompress((DUMPS / f"{commit}.{kind}.sql.xz").read_bytes()).decode()
    keep = "UPDATE deferred_calls SET expires_at = 1e10"
    if kind == "sqlite":
        with closing(sqlite3.connect(url.removeprefix("sqlite:"))) as connection:
            connection.executescript(f"{dump}\n{keep};")
    else:
        server: Postgres = request.getfixturevalue("postgres")
        server.load(url, dump.replace("earlier_store", url.rpartition("=")[2]))
        server.sql(url, keep)
    return url


@pytest.fixture
def change(url: str, request: pytest.FixtureRequest) -> Change:
    """Run statements behind the store's back."""

    def run(*statements: str) -> None:
        if url.startswith("postgresql:"):
            request.getfixturevalue("postgres").sql(url, *statements)
            return
        with closing(sqlite3.connect(url.removeprefix("sqlite:"))) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    return run


@asynccontextmanager
async def open_client(url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve a gateway on the store, to the caller who wrote it."""
    config = Config(
        store=StoreSettings(url=url),
        http=HttpSettings(listen="127.0.0.1:0"),
        plugins=PluginSettings(bundled=["bus", "trail"]),
        callers={"ann": CallerSettings(token="token-of-ann")},
    )
    async with open_app(config) as app, open_http(app) as address:
        async with httpx2.AsyncClient(base_url=address.removesuffix("/mcp"), headers=ANN, timeout=60) as http:
            yield http


async def ask(http: httpx2.AsyncClient, method: str, params: dict[str, Any], **capabilities: Any) -> Any:
    meta = ENVELOPE | {"io.modelcontextprotocol/clientCapabilities": capabilities}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    name = str(params.get("name") or params.get("taskId"))
    headers = {"Accept": "application/json, text/event-stream", "Mcp-Method": method, "Mcp-Name": name}
    return (await http.post("/mcp", json=body, headers=headers)).json()["result"]


async def read_rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    def select() -> Script[list[tuple[Any, ...]]]:
        return [tuple(row) for row in (yield Statement(sql))]

    return await store.scripts.read(select)


async def migrate_parts(store: Store, url: str) -> None:
    for part in bundled_parts():
        if part.migrations is not None:
            await migrate_part(store, url, part.name, part.migrations)


async def describe(url: str, *, parts: bool = True) -> dict[str, Any]:
    """Return the schema: columns, indexes, triggers, ledgers without times."""
    async with open_store(url) as store:
        if parts:
            await migrate_parts(store, url)
        described: dict[str, Any] = {
            "kernel": await read_rows(store, "SELECT number, name, digest FROM migrations ORDER BY number"),
            "parts": await read_rows(
                store, "SELECT part, number, name, digest FROM part_migrations ORDER BY part, number"
            ),
        }
        sqls = _SQLITE_SCHEMA if (await store.facts()).kind == "sqlite" else _POSTGRES_SCHEMA
        for number, sql in enumerate(sqls):
            described[f"schema {number}"] = sorted(await read_rows(store, sql), key=repr)
        return described


_SQLITE_SCHEMA = (
    (
        'SELECT m.name, c.cid, c.name, c.type, c."notnull", c.dflt_value, c.pk FROM sqlite_schema m, pragma_table_info(m.name) c'
        " WHERE m.type = 'table'"
    ),
    (
        'SELECT m.name, i.name, i."unique", i.origin, i.partial, c.seqno, c.name'
        " FROM sqlite_schema m, pragma_index_list(m.name) i, pragma_index_info(i.name) c WHERE m.type = 'table'"
    ),
    "SELECT name, sql FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL",
    "SELECT name, sql LIKE '%WITHOUT ROWID' FROM sqlite_schema WHERE type = 'table'",
)
_POSTGRES_SCHEMA = (
    (
        "SELECT table_name::text, ordinal_position::bigint, column_name::text, data_type::text, is_nullable::text,"
        " column_default::text, collation_name::text, is_identity::text FROM information_schema.columns"
        " WHERE table_schema = current_schema()"
    ),
    "SELECT replace(indexdef, current_schema() || '.', '') FROM pg_indexes WHERE schemaname = current_schema()",
    (
        "SELECT t.tgname::text, replace(pg_get_triggerdef(t.oid), current_schema() || '.', '') FROM pg_trigger t"
        " JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = current_schema()::regnamespace AND NOT t.tgisinternal"
    ),
    "SELECT proname::text, trim(prosrc) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace",
    (
        "SELECT c.relname::text, k.contype::text, k.conname::text, pg_get_constraintdef(k.oid) FROM pg_constraint k"
        " JOIN pg_class c ON c.oid = k.conrelid WHERE c.relnamespace = current_schema()::regnamespace AND k.contype <> 'n'"
    ),
)


async def read_everything(url: str) -> dict[str, Any]:
    """Return all rows, those of the ledgers too."""
    async with open_store(url) as store:
        tables = (AUDIT, KEYS, *TABLES, *await find_part_tables(store))
        rows: dict[str, Any] = {table.name: await store.tables.up_to(table, None, None) for table in tables}
        return rows | {name: await read_rows(store, f"SELECT * FROM {name}") for name in NOT_COPIED}


async def test_an_earlier_store_opens_with_its_audit_tasks_and_threads(url: str) -> None:
    async with open_store(url) as store:
        verdict = await store.audit.verify()
        (mcp_task,) = (row[0] for row in await read_rows(store, "SELECT id FROM mcp_tasks WHERE status = 'completed'"))
    async with open_client(url) as http:
        listed = await ask(http, "tools/call", {"name": "bus__list_tasks", "arguments": {}})
        done = await ask(http, "tools/call", {"name": "bus__get_task", "arguments": {"bead_id": "t-done"}})
        submission = {"bead_id": "t-new", "depends_on": ["t-waiting"]}
        submitted = await ask(http, "tools/call", {"name": "bus__submit_task", "arguments": submission})
        records = await ask(
            http, "tools/call", {"name": "trail__audit_verify_chain", "arguments": {"session_id": "close"}}
        )
        task = await ask(http, "tasks/get", {"taskId": mcp_task}, extensions={"io.modelcontextprotocol/tasks": {}})
        (thread,) = (await http.get("/api/threads")).json()["threads"]
        messages = (await http.get(f"/api/threads/{thread['id']}/messages")).json()["messages"]
    async with open_store(url) as store:
        later = await store.audit.verify()
        pins = await store.pins.of_server("notes/ann")

    assert verdict.is_intact
    assert verdict.checked == 41
    assert {task["bead_id"]: task["state"] for task in listed["structuredContent"]["tasks"]} == TASKS
    assert done["structuredContent"]["result"] == {"ok": True}
    assert [attempt["worker"] for attempt in done["structuredContent"]["attempts"]] == ["ada"]
    assert submitted["structuredContent"]["waits_for"] == ["t-waiting"]
    assert records["structuredContent"]["data"]["valid"], records
    assert task["result"]["structuredContent"] == {"result": "wrote tuesday"}
    assert thread["title"] == "Monday"
    assert [message["role"] for message in messages] == ["user", "assistant"] * 3
    assert later.is_intact
    assert later.checked > verdict.checked
    assert set(pins) == {"notes__read", "notes__write", "notes:instructions"}


async def test_an_adopted_store_has_the_schema_and_ledgers_of_a_new_one(
    url: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    adopted = await describe(url)
    new = await describe(url_of(kind, request, tmp_path / "new.db"))

    assert adopted == new


async def test_a_second_open_changes_nothing(url: str) -> None:
    first = await read_everything(url), await describe(url, parts=False)
    second = await read_everything(url), await describe(url, parts=False)

    assert first == second
    assert len(first[0]["credentials"]) == 2
    assert first[0]["key_values"]
    assert first[0]["pins"]
    assert first[0]["login_clients"]
    assert first[0]["approval_votes"]
    assert first[0]["export_cursors"]


async def test_a_store_that_no_gateway_has_opened_is_adopted(
    url: str, kind: str, change: Change, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with open_store(url_of(kind, request, tmp_path / "new.db")) as store:
        await migrate_parts(store, url_of(kind, request, tmp_path / "new.db"))
    earlier = ("approval_", "login_", "trail_", "results_", "console_", "models_", "export_", "part_migrations")
    if kind == "sqlite":
        with closing(sqlite3.connect(url.removeprefix("sqlite:"))) as connection:
            names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    else:
        server: Postgres = request.getfixturevalue("postgres")
        listed = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
        names = server.sql(url, listed).splitlines()
        server.sql(url, "DROP FUNCTION trail_is_only_added_to CASCADE")
    change(*(f"DROP TABLE {name}" for name in names if name.startswith(earlier)))
    adopted = await describe(url)
    new = await describe(url_of(kind, request, tmp_path / "other.db"))

    assert adopted == new


@pytest.mark.parametrize("commit", COMMITS[:1], indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM migrations WHERE number > 20",
        "DELETE FROM part_migrations WHERE part = 'trail' AND number = 2",
        "DELETE FROM part_migrations WHERE part = 'approvals' AND number = 3",
    ],
)
async def test_an_older_store_is_refused_and_left_alone(url: str, change: Change, statement: str) -> None:
    change(statement)
    for _ in range(2):
        with pytest.raises(BadConfiguration, match="older than commit 502978a1") as refused:
            async with open_store(url):
                pass

        assert refused.value.hint is not None
        assert "toolpost serve` of commit ffe55334" in refused.value.hint
    change("SELECT * FROM shelf", "SELECT * FROM deferred_calls")


@pytest.mark.parametrize("commit", COMMITS[:1], indirect=True)
@pytest.mark.parametrize("number", [5, 21])
async def test_a_store_of_other_migrations_is_refused(url: str, change: Change, number: int) -> None:
    change(f"UPDATE migrations SET digest = 'other' WHERE number = {number}")
    with pytest.raises(BadConfiguration, match="made by other migrations"):
        async with open_store(url):
            pass


KILLED = """
import anyio, os, signal, sys
from toolpost.store import adoption, open_store

def die(*_):
    yield from rewrite(*_)
    os.kill(os.getpid(), signal.SIGKILL)

rewrite, adoption._rewrite_ledgers = adoption._rewrite_ledgers, die
async def main():
    async with open_store(sys.argv[1]):
        pass
anyio.run(main)
"""

OPENER = """
import anyio, sys
from toolpost.manifest import bundled_parts
from toolpost.store import open_store
from toolpost.store.part_migrations import migrate_part

async def main():
    async with open_store(sys.argv[1]) as store:
        for part in bundled_parts():
            if part.migrations is not None:
                await migrate_part(store, sys.argv[1], part.name, part.migrations)
        print((await store.audit.verify()).checked)
anyio.run(main)
"""


@attack(
    "operator",
    "kills a process that adopts an earlier store, then opens the store in several processes at once",
    "nothing is lost, and it is adopted once, on SQLite and PostgreSQL",
)
@pytest.mark.parametrize("commit", COMMITS[:1], indirect=True)
async def test_a_kill_and_a_race_lose_nothing(
    url: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, url], capture_output=True, text=True, timeout=120)
    command = [sys.executable, "-c", OPENER, url]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    ends = [process.communicate(timeout=120) for process in processes]
    adopted = await describe(url)
    new = await describe(url_of(kind, request, tmp_path / "new.db"))

    assert killed.returncode == -signal.SIGKILL
    assert [out.strip() for out, _ in ends] == ["41"] * 4, ends
    assert adopted == new


def copy_without(folder: Path, *parts: str) -> dict[str, str]:
    """Copy the package without some parts, and return the environment in which it is imported."""
    source = Path(toolpost.__path__[0])
    shutil.copytree(source, folder / "toolpost", ignore=shutil.ignore_patterns("__pycache__"))
    for part in parts:
        shutil.rmtree(folder / "toolpost/parts" / part)
    return {**os.environ, "PYTHONPATH": str(folder)}


async def test_a_store_opens_without_the_parts_whose_tables_it_has(url: str, tmp_path: Path) -> None:
    environment = copy_without(tmp_path / "copy", "bus", "trail", "approvals")
    (tmp_path / "toolpost.toml").write_text(f'[store]\nurl = "{url}"\n[plugins]\nbundled = ["time"]\n')
    ran = [
        subprocess.run(
            [sys.executable, "-m", "toolpost", *command],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        for command in (("call", "time__current_time", "timezone=UTC"), ("store", "status"), ("audit", "verify"))
    ]
    async with open_client(url) as http:
        listed = await ask(http, "tools/call", {"name": "bus__list_tasks", "arguments": {}})

    assert [one.returncode for one in ran] == [0, 0, 0], ran
    assert "bus_archive" in ran[1].stdout
    assert {task["bead_id"]: task["state"] for task in listed["structuredContent"]["tasks"]} == TASKS


@pytest.mark.parametrize("commit", COMMITS[:1], indirect=True)
def test_an_adopted_store_is_copied_whole(url: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    target = url_of("postgres" if kind == "sqlite" else "sqlite", request, tmp_path / "copy.db")
    (tmp_path / "toolpost.toml").write_text(f'[store]\nurl = "{url}"\n')
    (tmp_path / "other").mkdir()
    (tmp_path / "other/toolpost.toml").write_text(f'[store]\nurl = "{target}"\n')
    toolpost_command = [sys.executable, "-m", "toolpost", "store"]
    moved = subprocess.run(
        [*toolpost_command, "migrate", "--to", target], cwd=tmp_path, capture_output=True, timeout=120
    )
    shown = [
        subprocess.run([*toolpost_command, "status", "--json"], cwd=folder, capture_output=True, text=True, timeout=120)
        for folder in (tmp_path, tmp_path / "other")
    ]

    assert moved.returncode == 0, moved
    rows = [json.loads(one.stdout)["rows"] for one in shown]
    assert rows[0] == rows[1]
    assert rows[0]["bus_archive"] == 3
    assert rows[0]["thread_messages"] == 6


def test_what_is_recorded_of_parts_is_what_they_have() -> None:
    for name, (step_name, digests) in adoption._FIRST_STEPS.items():
        for kind, digest in digests.items():
            folder = Path(toolpost.__path__[0]) / "parts" / name / "migrations" / kind
            first = read_migrations(folder)[0]
            assert (first.number, first.name, first.digest) == (1, step_name, digest)


def test_the_kernel_begins_with_one_migration() -> None:
    for kind in ("sqlite", "postgres"):
        first = list_migrations(kind)[0]
        assert (first.number, first.name) == (1, "kernel")
