"""Applies the migrations of `migrations/sqlite` to a database file."""

import sqlite3
from collections.abc import Sequence

from toolpost.store.migrate import Migration, find_missing, make_foreign_tables, split_statements

_CREATE_TABLE = """
CREATE TABLE IF NOT EXISTS migrations (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL, applied_at TEXT NOT NULL
)
"""
_RECORD = """
INSERT INTO migrations (number, name, digest, applied_at)
VALUES (?, ?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
"""
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"


def migrate(connection: sqlite3.Connection, known: Sequence[Migration]) -> None:
    """Apply the missing migrations, all of them or none. Processes that open a file together apply them once."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        _refuse_foreign(connection)
        connection.execute(_CREATE_TABLE)
        applied = dict(connection.execute("SELECT number, digest FROM migrations").fetchall())
        for migration in find_missing(applied, known):
            # Not with `executescript`, which would commit the transaction that is the lock.
            for statement in split_statements(migration.sql):
                connection.execute(statement)
            connection.execute(_RECORD, (migration.number, migration.name, migration.digest))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _refuse_foreign(connection: sqlite3.Connection) -> None:
    tables = [name for (name,) in connection.execute(_TABLES)]
    columns = {row[1] for row in connection.execute("PRAGMA table_info(migrations)")}
    if tables and not {"number", "digest"} <= columns:
        raise make_foreign_tables(tables)
