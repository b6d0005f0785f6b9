"""Opens and migrates a database file, and translates its errors."""

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from toolpost.base.state_folder import make_folder
from toolpost.contracts.errors import BadConfiguration, ToolpostError
from toolpost.store.adoption import adopt
from toolpost.store.migrate import Migration, find_missing, make_foreign_tables, split_statements
from toolpost.store.scripts import Statement
from toolpost.store.urls import MEMORY

_CREATE_MIGRATIONS: Final = """
CREATE TABLE IF NOT EXISTS migrations (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL, applied_at TEXT NOT NULL
)
"""
_RECORD_MIGRATION: Final = """
INSERT INTO migrations (number, name, digest, applied_at)
VALUES (?, ?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
"""
_TABLES: Final = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"

_FACTS: Final = {
    sqlite3.SQLITE_BUSY: ("is held by another process", "see which other process has it open"),
    sqlite3.SQLITE_LOCKED: ("is held by another process", "see which other process has it open"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "check that the folder exists and may be written to"),
    sqlite3.SQLITE_PERM: ("cannot be opened", "check that the folder exists and may be written to"),
    sqlite3.SQLITE_READONLY: ("may not be written to", "check who owns the file and its folder"),
    sqlite3.SQLITE_FULL: ("has no space left: the disk is full", "free some space"),
    sqlite3.SQLITE_IOERR: ("could not be read or written", "check the disk, and the space left on it"),
    sqlite3.SQLITE_CORRUPT: ("is damaged", "move the file away, or restore it from a backup"),
    sqlite3.SQLITE_NOTADB: ("is not a database", "name another file, or move this one away"),
}


def explain_error(error: Exception, path: str | Path, kind: type[ToolpostError]) -> ToolpostError:
    """Make an error of `kind` that states what a database or file error means, with a hint what to do."""
    # Errors that the Python module itself raises have no code.
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if isinstance(error, OSError):
        code = sqlite3.SQLITE_CANTOPEN
    # The low byte is the kind of error; the rest tells the variants apart.
    fact, hint = _FACTS.get(code & 0xFF, ("failed", None))
    explanation = kind(f"the store {path} {fact}: {error}", hint=hint)
    explanation.__cause__ = error
    return explanation


def open_writer(path: str | Path, *, durable: bool, busy_timeout_s: float) -> sqlite3.Connection:
    """Open the connection that writes; the file and its folder are made when missing, for the owner alone."""
    if path != MEMORY:
        make_folder(Path(path).parent, mode=0o700)
        # SQLite would create it readable for all users; the files beside it (-wal, -shm) get the mode of this one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False)
    try:
        if _use_wal(connection, deadline=time.monotonic() + busy_timeout_s) not in {"wal", "memory"}:
            raise BadConfiguration(
                "the store's folder cannot hold a write-ahead log", hint="keep the store on a local disk"
            )
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    """Open a connection that cannot write."""
    url = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(url, uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False)
    # A text that was tampered with may not be Unicode: it has to be read all the same, so that `verify` can report it.
    connection.text_factory = lenient_text
    return connection


def lenient_text(raw: bytes) -> str:
    """Decode a text that may not be Unicode."""
    return raw.decode("utf-8", "surrogateescape")


def _use_wal(connection: sqlite3.Connection, *, deadline: float) -> str:
    # The busy timeout does not apply here: of two processes that open a new file, one fails at once.
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


@contextmanager
def begin_immediate(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that has the write lock from its beginning; rolled back if the block raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite itself ends the transaction when the disk fails.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def migrate(connection: sqlite3.Connection, known: Sequence[Migration]) -> None:
    """Apply the missing migrations, all of them or none. Processes that open a file together apply them once."""
    with begin_immediate(connection):
        tables = [name for (name,) in connection.execute(_TABLES)]
        columns = {row[1] for row in connection.execute("PRAGMA table_info(migrations)")}
        if tables and not {"number", "digest"} <= columns:
            raise make_foreign_tables(tables)
        connection.execute(_CREATE_MIGRATIONS)
        _adopt(connection)
        applied = dict(connection.execute("SELECT number, digest FROM migrations").fetchall())
        for migration in find_missing(applied, known):
            # Not with `executescript`, which would commit the transaction that is the lock.
            for statement in split_statements(migration.sql):
                connection.execute(statement)
            connection.execute(_RECORD_MIGRATION, (migration.number, migration.name, migration.digest))


def _adopt(connection: sqlite3.Connection) -> None:
    script = adopt("sqlite")
    with suppress(StopIteration):
        step = next(script)
        while isinstance(step, Statement):
            step = script.send(connection.execute(step.sql, step.values).fetchall())
