"""A store in PostgreSQL, for more than one machine: several gateways share one schema of one database."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self, TypeVar

import anyio

from toolpost.contracts.errors import BadConfiguration, GatewayError, StoreUnavailable
from toolpost.store.audit import AuditLog
from toolpost.store.base import POOL, RETRY_S, Store, StoreFacts
from toolpost.store.clock import StoreClock
from toolpost.store.migrate import known_migrations
from toolpost.store.postgres.audit import ChainWriter
from toolpost.store.postgres.connection import (
    COMMAND_S,
    CONNECT_S,
    DATABASE_ERRORS,
    ROLLED_BACK,
    Connection,
    Database,
    Pool,
    check_server,
    explain_error,
    is_passing,
    persist,
)
from toolpost.store.postgres.link import Link
from toolpost.store.postgres.migrate import migrate
from toolpost.store.postgres.scripts import PostgresScripts, look_at_clock
from toolpost.store.postgres.wakeups import PostgresWakeups
from toolpost.store.urls import PostgresPlace

Result = TypeVar("Result")
PostgresJob = Callable[[Connection], Awaitable[Result]]


_FACTS: Final = """
SELECT current_setting('server_version') AS version, (SELECT max(number) FROM migrations) AS migration,
    (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
     JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r') AS size
"""


class _FateUnknown(Exception):
    """The connection was lost while a commit was under way."""


class PostgresStore(Store):
    """A schema, shared with whatever other gateways use it."""

    def __init__(self, database: Database, pool: Pool, link: Link) -> None:
        self.database = database
        self._pool = pool
        self._link = link
        self._is_closed = False
        self.clock = StoreClock()
        self._wakeups = PostgresWakeups(database, self.read)
        self._scripts = PostgresScripts(self)
        super().__init__(
            scripts=self._scripts,
            audit=AuditLog(self._scripts, ChainWriter(database, link).write),
            wakeups=self._wakeups,
        )

    @classmethod
    async def open(
        cls, place: PostgresPlace, *, pool: int = POOL, retry_s: float = RETRY_S, command_s: float = COMMAND_S
    ) -> Self:
        """Reach the database, and bring its schema up to this code."""
        # Short: a database that is just starting is waited for, one that does not exist is reported soon.
        patience = Database(place=place, retry_s=min(retry_s, CONNECT_S))
        with _raise_as_configuration(place):
            await persist(lambda: _migrate(patience), patience)
            database = Database(place=place, retry_s=retry_s, command_s=command_s)
            store = cls(database, await database.open_pool(pool), Link(database))
            try:
                await store.read(lambda connection: look_at_clock(connection, store.clock))
            except BaseException:
                await store.aclose()
                raise
            return store

    @classmethod
    async def exists(cls, place: PostgresPlace) -> bool:
        """Say whether there is a store, without making one."""
        database = Database(place=place, retry_s=CONNECT_S)
        link = Link(database)
        try:
            with _raise_as_configuration(place):
                connection = await persist(link.connection, database)
                ledger = f"{place.schema}.migrations"
                return bool(await connection.fetchval("SELECT to_regclass($1::text) IS NOT NULL", ledger))
        finally:
            await link.aclose()

    @property
    def commits(self) -> int:
        """How many batches of audit entries were committed: far fewer than entries, under load."""
        return self.audit.commits

    async def read(self, job: PostgresJob[Result]) -> Result:
        """Run a job that only reads; again, if the connection was lost."""
        return await persist(lambda: self._with_connection(job), self.database)

    async def write(self, job: PostgresJob[Result], *, repeatable: bool = False) -> Result:
        """Run a job in a transaction; done when it is committed.

        A job whose connection is lost before the commit is run again, so it changes nothing but the database. One whose
        connection is lost *during* the commit may have been kept: it is run again only if it is `repeatable`, which is to
        say that it does nothing the second time (an upsert by key, or a look for its own id first).
        """
        try:
            return await persist(
                lambda: self._with_connection(lambda c: _run_in_transaction(c, job, repeatable)), self.database
            )
        except _FateUnknown as error:
            raise StoreUnavailable(
                f"the store {self.database.place.shown} was lost during a commit",
                hint="it is unknown whether the change was committed: check before repeating it",
            ) from error

    async def facts(self) -> StoreFacts:
        """Say what the store is and how large."""
        row = await self.read(lambda connection: connection.fetchrow(_FACTS, self.database.place.schema))
        assert row is not None
        return StoreFacts(
            url=self.database.place.shown,
            kind="postgresql",
            version=f"PostgreSQL {row['version']}",
            migration=row["migration"],
            size_bytes=row["size"],
        )

    async def aclose(self) -> None:
        """Commit all that waits, and let go of the database."""
        if self._is_closed:
            return
        with anyio.CancelScope(shield=True):
            # What was rung still needs the database.
            await self._scripts.aclose()
            await self._wakeups.aclose()
            self._is_closed = True
            await self.audit.aclose()
            await self._link.aclose()
            try:
                await asyncio.wait_for(self._pool.close(), CONNECT_S)
            except TimeoutError:
                self._pool.terminate()

    async def _with_connection(self, job: PostgresJob[Result]) -> Result:
        self._refuse_if_closed()
        async with self._pool.acquire(timeout=CONNECT_S) as connection:
            return await job(connection)

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise GatewayError("the store is closed")


async def _migrate(database: Database) -> None:
    connection = await database.connect()
    try:
        await check_server(connection, database.place)
        await migrate(connection, database.place.schema, known_migrations("postgres"))
        await connection.close(timeout=CONNECT_S)
    finally:
        connection.terminate()


@contextmanager
def _raise_as_configuration(place: PostgresPlace) -> Iterator[None]:
    """Turn errors at the start into `BadConfiguration`: the operator can correct them."""
    try:
        yield
    except StoreUnavailable as error:
        raise BadConfiguration(error.message, hint="check that the database is running, and store.url") from error
    except GatewayError as error:
        raise BadConfiguration(error.message, hint=error.hint) from error
    except (ValueError, *DATABASE_ERRORS) as error:
        raise explain_error(error, place, BadConfiguration) from error


async def _run_in_transaction(connection: Connection, job: PostgresJob[Result], repeatable: bool) -> Result:
    transaction = connection.transaction()
    await transaction.start()
    try:
        result = await job(connection)
    except BaseException:
        # Also for a job that is being cancelled: its locks are not kept until the connection is used again.
        if not connection.is_closed():
            with anyio.move_on_after(CONNECT_S, shield=True):
                await transaction.rollback()
        raise
    try:
        await transaction.commit()
    except DATABASE_ERRORS as error:
        if not repeatable and is_passing(error) and not isinstance(error, ROLLED_BACK):
            raise _FateUnknown from error
        raise
    return result
