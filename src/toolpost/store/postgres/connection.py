"""Connections to PostgreSQL: opening, transient errors that are retried, and the meaning of all others."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import asyncpg

from toolpost.contracts.errors import BadConfiguration, GatewayError, StoreUnavailable, ToolpostError
from toolpost.store.urls import PostgresLocation

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
"""After this time a statement is taken for one on a dead connection."""

OLDEST_VERSION: Final = 13
_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0

DATABASE_ERRORS: Final = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""All that a connection may raise."""

ROLLED_BACK: Final = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""Errors after which it is certain that nothing was committed."""

# The server stops, starts, fails over or has too many connections for a moment, or two transactions were in conflict.
_TRANSIENT: Final = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    # The driver raises this for a connection that was cut during an operation.
    asyncpg.InternalClientError,
    *ROLLED_BACK,
)
_FACTS: Final[dict[type[BaseException], tuple[str, str]]] = {
    asyncpg.InvalidAuthorizationSpecificationError: ("refuses the user", "check user and password in store.url"),
    asyncpg.InvalidCatalogNameError: ("does not exist", "create the database first: `createdb NAME`"),
    asyncpg.InsufficientPrivilegeError: ("denies permission", "GRANT CREATE, USAGE on it to the user"),
    asyncpg.DiskFullError: ("has no space left: its disk is full", "free some space on the database's machine"),
    asyncpg.OutOfMemoryError: ("has no memory left", "check the memory of the database's machine"),
    asyncpg.DataCorruptedError: ("is damaged", "restore it from a backup"),
    asyncpg.IndexCorruptedError: ("is damaged", "restore it from a backup, or REINDEX"),
    ValueError: ("has an invalid URL", "write postgresql://user:password@host:port/database"),
}


@dataclass(frozen=True, kw_only=True)
class Database:
    """Where the store is, and how long operations wait for it."""

    location: PostgresLocation
    retry_s: float
    command_s: float = COMMAND_S

    @property
    def settings(self) -> dict[str, str]:
        """The server settings of every connection."""
        return {"search_path": self.location.schema, "application_name": "toolpost"}

    async def connect(self) -> OwnConnection:
        """Open a connection outside the pool."""
        connection = await asyncpg.connect(
            self.location.dsn, timeout=CONNECT_S, command_timeout=self.command_s, server_settings=self.settings
        )
        await _prepare(connection)
        return connection

    async def open_pool(self, size: int) -> Pool:
        """Open a pool of connections, each used for one job at a time."""
        return await asyncpg.create_pool(
            self.location.dsn,
            # Opened when needed: a pool that restores a minimum logs every failure while the database is unreachable.
            min_size=0,
            max_size=size,
            timeout=CONNECT_S,
            command_timeout=self.command_s,
            server_settings=self.settings,
            init=_prepare,
            # No job leaves state on its connection, so that the round trip to reset it is saved.
            reset=_nothing,
        )


class ReconnectingConnection:
    """A connection outside the pool, opened when it is needed, and again after it was lost. For one user at a time."""

    def __init__(self, database: Database, connection: OwnConnection | None = None) -> None:
        self._database = database
        self._connection = connection

    async def open(self) -> OwnConnection:
        """Return the connection, a new one if the last was lost."""
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._database.connect()
        return self._connection

    def drop(self) -> None:
        """Terminate a connection whose state is not known."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def aclose(self) -> None:
        """Close the connection within a second."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            try:
                await connection.close(timeout=1)
            except DATABASE_ERRORS:
                connection.terminate()


async def _prepare(connection: Connection) -> None:
    await connection.set_type_codec("text", schema="pg_catalog", encoder=escape, decoder=unescape, format="text")


# PostgreSQL cannot store NUL in a text. It becomes a substitute character (U+001A) and `0`, the substitute character itself the
# same and `1`, in every parameter and column of a connection. Arrays are escaped by the code that makes them.
_SUBSTITUTE: Final = "\x1a"


def escape(text: str) -> str:
    """Return a text that PostgreSQL can store."""
    if "\0" not in text and _SUBSTITUTE not in text:
        return text
    return text.replace(_SUBSTITUTE, f"{_SUBSTITUTE}1").replace("\0", f"{_SUBSTITUTE}0")


def unescape(text: str) -> str:
    """Return a text as it was before `escape`."""
    if _SUBSTITUTE not in text:
        return text
    return text.replace(f"{_SUBSTITUTE}0", "\0").replace(f"{_SUBSTITUTE}1", _SUBSTITUTE)


async def _nothing(_connection: Connection) -> None:
    return


def is_transient(error: BaseException) -> bool:
    """Whether the same operation may succeed later."""
    if isinstance(error, asyncpg.InterfaceError):
        return "clos" in str(error) or "released" in str(error)
    return isinstance(error, _TRANSIENT)


async def retry_transient(attempt: Callable[[], Awaitable[Result]], database: Database) -> Result:
    """Try until it succeeds, for `retry_s` at most; raises `GatewayError` for an error that is not transient.

    What is tried must be safe to repeat. Raises `StoreUnavailable` when the time is over.
    """
    loop = asyncio.get_running_loop()
    deadline, pause_s = loop.time() + database.retry_s, _PAUSE_S
    while True:
        try:
            return await attempt()
        except DATABASE_ERRORS as error:
            if not is_transient(error):
                raise explain_error(error, database.location, GatewayError) from error
            if loop.time() + pause_s > deadline:
                raise make_unavailable(error, database) from error
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def explain_error(error: BaseException, location: PostgresLocation, kind: type[ToolpostError]) -> ToolpostError:
    """Make an error of `kind` that states what a database error means, with a hint what to do."""
    fact, hint = next((fact for type_, fact in _FACTS.items() if isinstance(error, type_)), ("failed", None))
    if is_transient(error):
        fact, hint = "cannot be reached", "check that it runs, and host and port in store.url"
    explanation = kind(f"the store {location.display_url} {fact}: {_describe(error)}", hint=hint)
    explanation.__cause__ = error
    return explanation


def make_unavailable(error: BaseException, database: Database) -> StoreUnavailable:
    """Make the error for a database that could not be reached for `retry_s`."""
    return StoreUnavailable(
        f"the store {database.location.display_url} cannot be reached: {_describe(error)}",
        hint=f"retried for {database.retry_s:g} s; check that the database is running",
    )


def _describe(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


async def check_server(connection: Connection, location: PostgresLocation) -> None:
    """Raise `BadConfiguration` for a server that is too old or not encoded in UTF-8."""
    if connection.get_server_version().major < OLDEST_VERSION:
        raise BadConfiguration(
            f"the store {location.display_url} is PostgreSQL {connection.get_server_version().major}",
            hint=f"use PostgreSQL {OLDEST_VERSION} or newer",
        )
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise BadConfiguration(
            f"the store {location.display_url} is encoded in {encoding}", hint="make the database with ENCODING 'UTF8'"
        )
