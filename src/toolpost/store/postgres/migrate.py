"""Applies the migrations of `migrations/postgres` to a schema of a database."""

from collections.abc import Sequence
from typing import Final

from toolpost.store.migrate import Migration, find_missing, make_foreign_tables
from toolpost.store.postgres.connection import Connection

_CREATE_TABLE = """
CREATE TABLE IF NOT EXISTS migrations (
    number BIGINT PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL, applied_at TEXT NOT NULL
)
"""
_RECORD = """
INSERT INTO migrations (number, name, digest, applied_at)
VALUES ($1, $2, $3, to_char(now() AT TIME ZONE 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
"""
_TABLES = "SELECT tablename::text FROM pg_tables WHERE schemaname = $1"
_COLUMNS = """
SELECT column_name::text FROM information_schema.columns WHERE table_schema = $1 AND table_name = 'migrations'
"""


MIGRATION_S: Final = 3_600.0
"""Timeout of each step: a large table may take long, and so may another gateway that holds the lock."""


async def migrate(connection: Connection, schema: str, known: Sequence[Migration]) -> None:
    """Apply the missing migrations, all of them or none, under a lock: gateways that start together apply them once."""
    async with connection.transaction():
        lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
        await connection.execute(lock, f"toolpost {schema} migrations", timeout=MIGRATION_S)
        # Checked first: without the right to create schemas, even CREATE SCHEMA IF NOT EXISTS fails.
        if await connection.fetchval("SELECT to_regnamespace($1::text) IS NULL", schema):
            await connection.execute(f"CREATE SCHEMA {schema}")
        await _refuse_foreign(connection, schema)
        await connection.execute(_CREATE_TABLE)
        applied = {row[0]: row[1] for row in await connection.fetch("SELECT number, digest FROM migrations")}
        for migration in find_missing(applied, known):
            await connection.execute(migration.sql, timeout=MIGRATION_S)
            await connection.execute(_RECORD, migration.number, migration.name, migration.digest)


async def _refuse_foreign(connection: Connection, schema: str) -> None:
    tables = [row[0] for row in await connection.fetch(_TABLES, schema)]
    columns = {row[0] for row in await connection.fetch(_COLUMNS, schema)}
    if tables and not {"number", "digest"} <= columns:
        raise make_foreign_tables(tables)
