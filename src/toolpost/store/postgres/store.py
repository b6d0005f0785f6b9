"""A store in PostgreSQL: several gateways, on several machines, share one schema of a database."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, Self, TypeVar

import anyio

from toolpost.contracts.errors import BadConfiguration, GatewayError, StoreUnavailable
from toolpost.metrics import Durations
from toolpost.store.adoption import adopt
from toolpost.store.audit import AuditLog, append_missing
from toolpost.store.base import POOL, RETRY_S, Store, StoreFacts
from toolpost.store.call_journal import AbandonedCalls, CallJournal
from toolpost.store.clock import StoreClock
from toolpost.store.migrate import find_missing, list_migrations, make_foreign_tables
from toolpost.store.postgres.audit import ChainWriter
from toolpost.store.postgres.connection import (
    COMMAND_S,
    CONNECT_S,
    DATABASE_ERRORS,
    ROLLED_BACK,
    Connection,
    Database,
    Pool,
    ReconnectingConnection,
    check_server,
    explain_error,
    is_transient,
    retry_transient,
)
from toolpost.store.postgres.scripts import PostgresScripts, synchronize_clock, translate
from toolpost.store.postgres.wakeups import PostgresWakeups
from toolpost.store.scripts import Statement
from toolpost.store.urls import PostgresLocation

Result = TypeVar("Result")
PostgresJob = Callable[[Connection], Awaitable[Result]]


_FACTS: Final = """
SELECT current_setting('server_version') AS version, (SELECT max(number) FROM migrations) AS migration,
    (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
     JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r') AS size
"""

_CREATE_MIGRATIONS: Final = """
CREATE TABLE IF NOT EXISTS migrations (
    number BIGINT PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL, applied_at TEXT NOT NULL
)
"""
_RECORD_MIGRATION: Final = """
INSERT INTO migrations (number, name, digest, applied_at)
VALUES ($1, $2, $3, to_char(now() AT TIME ZONE 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
"""
_TABLES: Final = "SELECT tablename::text FROM pg_tables WHERE schemaname = $1"
_MIGRATION_COLUMNS: Final = """
SELECT column_name::text FROM information_schema.columns WHERE table_schema = $1 AND table_name = 'migrations'
"""

MIGRATION_S: Final = 3_600.0
"""Timeout of each step: a large table may take long, and so may another gateway that holds the lock."""


class _CommitUnknown(Exception):
    """The connection was lost during a commit, which may have succeeded."""


class PostgresStore(Store):
    """One schema of a database, which other gateways may use as well."""

    def __init__(
        self, database: Database, pool: Pool, connection: ReconnectingConnection, calls: CallJournal | None = None
    ) -> None:
        self.database = database
        self._pool = pool
        self._audit_connection = connection
        self._is_closed = False
        self.clock = StoreClock()
        self._wakeups = PostgresWakeups(database, self.read)
        commits = Durations()
        self._scripts = PostgresScripts(self, commits)
        super().__init__(
            scripts=self._scripts,
            audit=AuditLog(self._scripts, ChainWriter(database, connection, commits).write, calls),
            wakeups=self._wakeups,
            commits=commits,
        )

    @classmethod
    async def open(
        cls,
        location: PostgresLocation,
        *,
        pool: int = POOL,
        retry_s: float = RETRY_S,
        command_s: float = COMMAND_S,
        journals: Path | None = None,
    ) -> Self:
        """Connect to the database, apply the migrations that its schema lacks, and record calls that were lost on this machine.

        Raises `BadConfiguration`.
        """
        # Short: a database that is just starting is waited for, one that does not exist is reported soon.
        starting = Database(location=location, retry_s=min(retry_s, CONNECT_S))
        with _raise_as_configuration(location):
            await retry_transient(lambda: _migrate(starting), starting)
            database = Database(location=location, retry_s=retry_s, command_s=command_s)
            prefix = None if journals is None else _prefix_of(location, journals)
            calls = None if prefix is None else CallJournal(prefix)
            store = cls(database, await database.open_pool(pool), ReconnectingConnection(database), calls)
            try:
                await store.read(lambda connection: synchronize_clock(connection, store.clock))
                if prefix is not None:
                    await store._record_lost(prefix)
            except BaseException:
                await store.aclose()
                raise
            return store

    @classmethod
    async def exists(cls, location: PostgresLocation) -> bool:
        """Return whether there is a store, without creating one."""
        database = Database(location=location, retry_s=CONNECT_S)
        reconnecting = ReconnectingConnection(database)
        try:
            with _raise_as_configuration(location):
                connection = await retry_transient(reconnecting.open, database)
                table = f"{location.schema}.migrations"
                return bool(await connection.fetchval("SELECT to_regclass($1::text) IS NOT NULL", table))
        finally:
            await reconnecting.aclose()

    @property
    def commits(self) -> int:
        """How many batches of audit entries were committed: far fewer than entries, under load."""
        return self.audit.commits

    async def read(self, job: PostgresJob[Result]) -> Result:
        """Run a job that only reads; it is run again if the connection is lost."""
        return await retry_transient(lambda: self._with_connection(job), self.database)

    async def write(self, job: PostgresJob[Result], *, repeatable: bool = False) -> Result:
        """Run a job in a transaction; done when it is committed.

        A job whose connection is lost before the commit is run again, so it must change nothing but the database. If the
        connection is lost *during* the commit, the change may have been kept: the job is run again only if it is `repeatable`, so
        that it does nothing the second time (an upsert by key, or a search for its own id first).
        """
        try:
            return await retry_transient(
                lambda: self._with_connection(lambda c: _run_in_transaction(c, job, repeatable)), self.database
            )
        except _CommitUnknown as error:
            raise StoreUnavailable(
                f"the store {self.database.location.display_url} was lost during a commit",
                hint="it is unknown whether the change was committed: check before repeating it",
            ) from error

    async def facts(self) -> StoreFacts:
        """Return what the store is and how large."""
        row = await self.read(lambda connection: connection.fetchrow(_FACTS, self.database.location.schema))
        assert row is not None
        return StoreFacts(
            url=self.database.location.display_url,
            kind="postgresql",
            version=f"PostgreSQL {row['version']}",
            migration=row["migration"],
            size_bytes=row["size"],
        )

    async def aclose(self) -> None:
        """Commit what is queued, and close all connections."""
        if self._is_closed:
            return
        with anyio.CancelScope(shield=True):
            # Before the pool: wake-ups that were rung are still to be sent.
            await self._scripts.aclose()
            await self._wakeups.aclose()
            self._is_closed = True
            await self.audit.aclose()
            await self._audit_connection.aclose()
            try:
                await asyncio.wait_for(self._pool.close(), CONNECT_S)
            except TimeoutError:
                self._pool.terminate()

    async def _record_lost(self, prefix: Path) -> None:
        """Record the calls that killed gateways have left in flight here, each once."""
        with closing(AbandonedCalls(prefix)) as abandoned:
            if abandoned.entries:
                await self._scripts.run(lambda: append_missing(abandoned.entries))
            abandoned.delete()
            self.lost_calls = len(abandoned.entries)

    async def _with_connection(self, job: PostgresJob[Result]) -> Result:
        if self._is_closed:
            raise GatewayError("the store is closed")
        async with self._pool.acquire(timeout=CONNECT_S) as connection:
            return await job(connection)


def _prefix_of(location: PostgresLocation, folder: Path) -> Path:
    """Return how the journals of a store begin: gateways of several stores may share a folder."""
    name = sha256(f"{location.display_url} {location.schema}".encode()).hexdigest()[:16]
    return folder.absolute() / f"calls-{name}-"


async def _migrate(database: Database) -> None:
    """Apply the missing migrations, all of them or none, under a lock: gateways that start together apply them once."""
    schema = database.location.schema
    connection = await database.connect()
    try:
        await check_server(connection, database.location)
        async with connection.transaction():
            lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
            await connection.execute(lock, f"toolpost {schema} migrations", timeout=MIGRATION_S)
            # Checked first: without the right to create schemas, even CREATE SCHEMA IF NOT EXISTS fails.
            if await connection.fetchval("SELECT to_regnamespace($1::text) IS NULL", schema):
                await connection.execute(f"CREATE SCHEMA {schema}")
            tables = [row[0] for row in await connection.fetch(_TABLES, schema)]
            columns = {row[0] for row in await connection.fetch(_MIGRATION_COLUMNS, schema)}
            if tables and not {"number", "digest"} <= columns:
                raise make_foreign_tables(tables)
            await connection.execute(_CREATE_MIGRATIONS)
            await _adopt(connection)
            applied = {row[0]: row[1] for row in await connection.fetch("SELECT number, digest FROM migrations")}
            for migration in find_missing(applied, list_migrations("postgres")):
                await connection.execute(migration.sql, timeout=MIGRATION_S)
                await connection.execute(_RECORD_MIGRATION, migration.number, migration.name, migration.digest)
        await connection.close(timeout=CONNECT_S)
    finally:
        connection.terminate()


async def _adopt(connection: Connection) -> None:
    script = adopt("postgres")
    with suppress(StopIteration):
        step = next(script)
        while isinstance(step, Statement):
            rows = await connection.fetch(translate(step.sql), *step.values, timeout=MIGRATION_S)
            step = script.send([tuple(row) for row in rows])


@contextmanager
def _raise_as_configuration(location: PostgresLocation) -> Iterator[None]:
    """Turn errors at the start into `BadConfiguration`: the operator can correct them."""
    try:
        yield
    except StoreUnavailable as error:
        raise BadConfiguration(error.message, hint="check that the database is running, and store.url") from error
    except GatewayError as error:
        raise BadConfiguration(error.message, hint=error.hint) from error
    except (ValueError, *DATABASE_ERRORS) as error:
        raise explain_error(error, location, BadConfiguration) from error


async def _run_in_transaction(connection: Connection, job: PostgresJob[Result], repeatable: bool) -> Result:
    transaction = connection.transaction()
    await transaction.start()
    try:
        result = await job(connection)
    except BaseException:
        # Also for a job that is cancelled: otherwise its locks would be held until the connection is used again.
        if not connection.is_closed():
            # What the rollback raises must not replace a cancellation: the job would be taken for one to be run again.
            with anyio.move_on_after(CONNECT_S, shield=True), suppress(*DATABASE_ERRORS):
                await transaction.rollback()
        raise
    try:
        await transaction.commit()
    except DATABASE_ERRORS as error:
        if not repeatable and is_transient(error) and not isinstance(error, ROLLED_BACK):
            raise _CommitUnknown from error
        raise
    return result
