"""How a PostgreSQL is reached, what its errors mean, and how long a lost one is waited for."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import asyncpg

from toolpost.contracts.errors import BadConfiguration, GatewayError, StoreUnavailable, ToolpostError
from toolpost.store.postgres.text import escape, unescape
from toolpost.store.urls import PostgresPlace

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    OwnConnection = asyncpg.Connection[asyncpg.Record]
    Connection = OwnConnection | PoolConnectionProxy[asyncpg.Record]
    Pool = asyncpg.Pool[asyncpg.Record]
else:
    # Generic in its stubs alone.
    OwnConnection = Connection = asyncpg.Connection
    Pool = asyncpg.Pool

Result = TypeVar("Result")

CONNECT_S: Final = 5.0
COMMAND_S: Final = 30.0
"""A statement that takes longer is taken for a connection that is dead without having said so."""

OLDEST: Final = 13
_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0

DATABASE_ERRORS: Final = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""All that a connection may raise."""

ROLLED_BACK: Final = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""What leaves no doubt that nothing was kept."""

# What passes by itself: the server ends, starts, fails over, is full for a moment, or two transactions met.
_PASSING: Final = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    # The driver has lost track of a connection that was cut in the middle of something.
    asyncpg.InternalClientError,
    *ROLLED_BACK,
)
_FACTS: Final[dict[type[BaseException], tuple[str, str]]] = {
    asyncpg.InvalidAuthorizationSpecificationError: ("does not let us in", "check user and password in store.url"),
    asyncpg.InvalidCatalogNameError: ("is not there", "make the database first: `createdb NAME`"),
    asyncpg.InsufficientPrivilegeError: ("may not be used like this", "GRANT CREATE, USAGE on it to the user"),
    asyncpg.DiskFullError: ("has no space left: its disk is full", "free some space on the database's machine"),
    asyncpg.OutOfMemoryError: ("has no memory left", "look at the database's machine"),
    asyncpg.DataCorruptedError: ("is damaged", "restore it from a backup"),
    asyncpg.IndexCorruptedError: ("is damaged", "restore it from a backup, or REINDEX"),
    ValueError: ("is not named properly", "write postgresql://user:password@host:port/database"),
}


@dataclass(frozen=True, kw_only=True)
class Database:
    """Where the store is, and how patient its users are."""

    place: PostgresPlace
    retry_s: float
    command_s: float = COMMAND_S

    @property
    def settings(self) -> dict[str, str]:
        """What every connection to it starts with."""
        return {"search_path": self.place.schema, "application_name": "toolpost"}

    async def connect(self) -> OwnConnection:
        """Open a connection of one's own."""
        connection = await asyncpg.connect(
            self.place.dsn, timeout=CONNECT_S, command_timeout=self.command_s, server_settings=self.settings
        )
        await prepare(connection)
        return connection

    async def open_pool(self, size: int) -> Pool:
        """Open a pool of connections, each used for one job at a time."""
        return await asyncpg.create_pool(
            self.place.dsn,
            # Opened when needed: a pool that restores a minimum complains at length while the database is away.
            min_size=0,
            max_size=size,
            timeout=CONNECT_S,
            command_timeout=self.command_s,
            server_settings=self.settings,
            init=prepare,
            # No job leaves state on its connection, so that the round trip to reset it is saved.
            reset=_nothing,
        )


async def prepare(connection: Connection) -> None:
    """Let texts pass that PostgreSQL cannot hold."""
    await connection.set_type_codec("text", schema="pg_catalog", encoder=escape, decoder=unescape, format="text")


async def _nothing(_connection: Connection) -> None:
    return


def is_passing(error: BaseException) -> bool:
    """Say whether trying again may help."""
    if isinstance(error, asyncpg.InterfaceError):
        return "clos" in str(error) or "released" in str(error)
    return isinstance(error, _PASSING)


async def persist(attempt: Callable[[], Awaitable[Result]], database: Database) -> Result:
    """Try until it works, it cannot work, or the patience ends. What is tried must bear being done again."""
    loop = asyncio.get_running_loop()
    deadline, pause_s = loop.time() + database.retry_s, _PAUSE_S
    while True:
        try:
            return await attempt()
        except DATABASE_ERRORS as error:
            if not is_passing(error):
                raise explain_error(error, database.place, GatewayError) from error
            if loop.time() + pause_s > deadline:
                raise unavailable(error, database) from error
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def explain_error(error: BaseException, place: PostgresPlace, kind: type[ToolpostError]) -> ToolpostError:
    """Say what a database error means, and what to do next."""
    fact, hint = next((told for seen, told in _FACTS.items() if isinstance(error, seen)), ("failed", None))
    if is_passing(error):
        fact, hint = "cannot be reached", "check that it runs, and host and port in store.url"
    explanation = kind(f"the store {place.shown} {fact}: {_words_of(error)}", hint=hint)
    explanation.__cause__ = error
    return explanation


def unavailable(error: BaseException, database: Database) -> StoreUnavailable:
    """Say that the patience has ended."""
    return StoreUnavailable(
        f"the store {database.place.shown} cannot be reached: {_words_of(error)}",
        hint=f"retried for {database.retry_s:g} s (store.retry_s); check that the database is running",
    )


def _words_of(error: BaseException) -> str:
    words = str(error) or type(error).__name__
    return words.splitlines()[0]


async def check_server(connection: Connection, place: PostgresPlace) -> None:
    """Refuse a server that cannot hold what the store needs."""
    if connection.get_server_version().major < OLDEST:
        raise BadConfiguration(
            f"the store {place.shown} is PostgreSQL {connection.get_server_version().major}",
            hint=f"use PostgreSQL {OLDEST} or newer",
        )
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise BadConfiguration(
            f"the store {place.shown} is encoded in {encoding}", hint="make the database with ENCODING 'UTF8'"
        )
