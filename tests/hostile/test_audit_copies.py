"""Stores that were emptied, cut, overwritten or copied: `audit verify` calls none of them sound, and changes none."""

# ruff: noqa: F811 - fixtures are imported, and named by the tests that use them

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import PLUGIN, Run, environment, invoke  # noqa: F401 - fixtures
from tests.hostile.attacks import attack
from toolpost.audit import AuditEntry
from toolpost.audit.sqlite_file import verify_file
from toolpost.settings.locations import state_folder
from toolpost.store.sqlite.journal import count_journaled, open_journal


@pytest.fixture
def store(invoke: Run, tmp_path: Path) -> Path:
    """A store with two calls on record, which nobody has open."""
    for text in ("a", "b"):
        invoke("call", "demo__echo", f"text={text}", *PLUGIN)
    return state_folder(tmp_path) / "toolpost.db"


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def cut(store: Path) -> None:
    os.truncate(store, store.stat().st_size // 2)


def cut_the_end(store: Path) -> None:
    os.truncate(store, store.stat().st_size - 4096)


def overwrite(store: Path) -> None:
    raw = bytearray(store.read_bytes())
    for page in range(1, len(raw) // 4096):
        raw[page * 4096 : page * 4096 + 64] = os.urandom(64)
    store.write_bytes(raw)


def empty(store: Path) -> None:
    store.write_bytes(b"")


def write_nonsense(store: Path) -> None:
    store.write_bytes(b"no database at all\n" * 1000)


def be_another(store: Path) -> None:
    store.unlink()
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("CREATE TABLE other (a)")


def start_anew(store: Path) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("DELETE FROM audit")
        connection.execute("UPDATE audit_head SET seq = 0, hash = ?", ("sha256:" + "0" * 64,))


@pytest.mark.parametrize(
    ("damage", "code", "verdict"),
    [
        (cut, 1, "broken"),
        (cut_the_end, 1, "broken"),
        (overwrite, 1, "broken"),
        (empty, 1, "broken"),
        (write_nonsense, 1, "broken"),
        (be_another, 1, "broken"),
        (start_anew, 2, "empty"),
    ],
)
@attack(
    "operator",
    "cuts, overwrites, empties or replaces the store, and has it verified",
    "`audit verify` reports the fault, with another exit code than for a sound audit; an empty audit is not sound",
)
def test_a_store_that_is_not_whole_is_not_sound(
    damage: object, code: int, verdict: str, store: Path, invoke: Run
) -> None:
    assert callable(damage)
    damage(store)
    told, machine = invoke("audit", "verify"), invoke("audit", "verify", "--json")

    assert (told.code, machine.code) == (code, code)
    assert "sound" not in told.out
    assert told.err.startswith("error: ")
    assert machine.json["isIntact"] is False
    assert machine.json["verdict"] == verdict


@pytest.mark.parametrize("has_log", [False, True])
@attack(
    "operator",
    "has a copy on a read-only disk verified, with or without its write-ahead log",
    "it is verified as it is: nothing is migrated, locked, taken over or made beside it",
)
def test_a_read_only_copy_is_verified_as_it_is(has_log: bool, store: Path, invoke: Run, tmp_path: Path) -> None:
    copy = tmp_path / "evidence" / "toolpost.db"
    copy.parent.mkdir()
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("SELECT count(*) FROM audit").fetchone()
        if has_log:
            # What is in the log alone must count: without it the record would be shorter.
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("CREATE TABLE IF NOT EXISTS spare (a)")
            connection.commit()
            shutil.copyfile(f"{store}-wal", f"{copy}-wal")
        shutil.copyfile(store, copy)
    for path in copy.parent.iterdir():
        path.chmod(0o400)
    copy.parent.chmod(0o500)
    before = files_in(copy.parent)
    config = tmp_path / "evidence.toml"
    config.write_text(f'[store]\nurl = "sqlite:{copy}"\n')
    try:
        ended = invoke("audit", "verify", "--json", "--config", str(config))
    finally:
        copy.parent.chmod(0o700)

    assert (ended.code, ended.json["verdict"], ended.json["checked"]) == (0, "sound", 2)
    assert files_in(copy.parent) == before


@pytest.mark.anyio
async def test_a_store_that_is_in_use_is_verified_beside_its_server(store: Path) -> None:
    with closing(sqlite3.connect(store)) as server:
        server.execute("BEGIN IMMEDIATE")
        server.execute("CREATE TABLE spare (a)")
        server.commit()
        verdict = await verify_file(store)

    assert (verdict.checked, verdict.is_intact) == (2, True)


@pytest.mark.anyio
async def test_what_is_noted_and_not_in_the_chain_is_counted(store: Path) -> None:
    with closing(sqlite3.connect(store)) as connection:
        names = AuditEntry.__struct_fields__
        row = connection.execute(f"SELECT {', '.join(names)} FROM audit LIMIT 1").fetchone()
    notes = open_journal(store)
    assert notes is not None
    assert notes.add(AuditEntry(**dict(zip(names, row, strict=True))))
    verdict = await verify_file(store)
    notes.clear()
    notes.close()

    assert (verdict.checked, verdict.noted, verdict.is_intact) == (2, 1, True)
    assert count_journaled(store) == 0


def test_the_verdict_is_told_in_json(store: Path, invoke: Run) -> None:
    verdict = json.loads(invoke("audit", "verify", "--json").out)

    assert verdict["isIntact"] is True
    assert verdict["verdict"] == "sound"
    assert verdict["noted"] == 0
