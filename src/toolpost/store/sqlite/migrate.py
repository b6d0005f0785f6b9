"""The steps of `migrations/sqlite`, applied to a database file."""

import sqlite3
from collections.abc import Iterator, Sequence

from toolpost.store.migrate import Migration, foreign, missing

_LEDGER = """
CREATE TABLE IF NOT EXISTS migrations (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL, applied_at TEXT NOT NULL
)
"""
_REMEMBER = """
INSERT INTO migrations (number, name, digest, applied_at)
VALUES (?, ?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
"""
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"


def migrate(connection: sqlite3.Connection, known: Sequence[Migration]) -> None:
    """Apply what is missing, all of it or nothing. Of two processes, the second finds it done."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        _refuse_foreign(connection)
        connection.execute(_LEDGER)
        applied = dict(connection.execute("SELECT number, digest FROM migrations").fetchall())
        for migration in missing(applied, known):
            _apply(connection, migration)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _refuse_foreign(connection: sqlite3.Connection) -> None:
    tables = [name for (name,) in connection.execute(_TABLES)]
    columns = {row[1] for row in connection.execute("PRAGMA table_info(migrations)")}
    if tables and not {"number", "digest"} <= columns:
        raise foreign(tables)


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
