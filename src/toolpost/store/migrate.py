"""Bring a database up to this code: numbered files, forward only, each applied once and remembered."""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

from toolpost.contracts.errors import BadConfiguration

_LEDGER = """
CREATE TABLE IF NOT EXISTS migrations (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL, applied_at TEXT NOT NULL
)
"""
_REMEMBER = """
INSERT INTO migrations (number, name, digest, applied_at)
VALUES (?, ?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
"""


@dataclass(frozen=True, kw_only=True)
class Migration:
    """One step, `0001_audit.sql`."""

    number: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        """What the step was when it was applied."""
        return "sha256:" + sha256(self.sql.encode()).hexdigest()


def known_migrations() -> list[Migration]:
    """Read the steps that come with this code, in order."""
    folder = files("toolpost.store").joinpath("migrations")
    texts = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir() if file.name.endswith(".sql")}
    return [_migration(name, texts[name]) for name in sorted(texts)]


def _migration(file_name: str, sql: str) -> Migration:
    number, _, name = file_name.removesuffix(".sql").partition("_")
    return Migration(number=int(number), name=name, sql=sql)


def migrate(connection: sqlite3.Connection, known: Sequence[Migration]) -> None:
    """Apply what is missing, all of it or nothing. Of two processes, the second finds it done."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(_LEDGER)
        for migration in _missing(connection, known):
            _apply(connection, migration)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _missing(connection: sqlite3.Connection, known: Sequence[Migration]) -> list[Migration]:
    applied = dict(connection.execute("SELECT number, digest FROM migrations").fetchall())
    if unknown := applied.keys() - {migration.number for migration in known}:
        raise BadConfiguration(
            f"the store was written by a newer Toolpost: it has migration {max(unknown)}",
            hint="upgrade Toolpost, or name another store",
        )
    for migration in known:
        if applied.get(migration.number, migration.digest) != migration.digest:
            raise BadConfiguration(
                f"the store was made by another migration {migration.number} ({migration.name}) than ours",
                hint="it comes from an unreleased Toolpost: name another store, or move this one away",
            )
    return [migration for migration in known if migration.number not in applied]


def _apply(connection: sqlite3.Connection, migration: Migration) -> None:
    for statement in _statements(migration.sql):
        connection.execute(statement)
    connection.execute(_REMEMBER, (migration.number, migration.name, migration.digest))


def _statements(sql: str) -> Iterator[str]:
    # `executescript` would commit the transaction that is the lock.
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement
