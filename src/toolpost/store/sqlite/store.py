"""A store in one SQLite file: one writer with group commit, a few readers that never wait for it."""

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import anyio.to_thread

from toolpost.contracts.errors import BadConfiguration, GatewayError
from toolpost.store.base import Store, StoreFacts
from toolpost.store.clock import StoreClock
from toolpost.store.migrate import known_migrations
from toolpost.store.sqlite.audit import SqliteAuditLog, append_all
from toolpost.store.sqlite.connection import explained, open_at_once, open_writer
from toolpost.store.sqlite.disk import Disk, LateDisk
from toolpost.store.sqlite.group_commit import GroupCommit
from toolpost.store.sqlite.journal import open_notes, take_over_notes
from toolpost.store.sqlite.migrate import migrate
from toolpost.store.sqlite.readers import SqliteReaders
from toolpost.store.sqlite.scripts import Player, SqliteScripts, look_at_clock
from toolpost.store.sqlite.wakeups import SqliteWakeups
from toolpost.store.urls import MEMORY

Result = TypeVar("Result")
SqliteJob = Callable[[sqlite3.Connection], Result]

QUEUE_LIMIT = 4_096
BUSY_TIMEOUT_S = 10.0


class SqliteStore(Store):
    """One database file, shared with whatever other processes have it open."""

    def __init__(self, path: str | Path, writer: GroupCommit, readers: SqliteReaders | None, player: Player) -> None:
        self.path = path
        self._writer = writer
        self._readers = readers
        self._is_closed = False
        self._wakeups = SqliteWakeups(path)
        super().__init__(
            scripts=SqliteScripts(player, submit=writer.submit, read=self.read),
            audit=SqliteAuditLog(submit=writer.submit, note=writer.note, read=self.read),
            wakeups=self._wakeups,
        )

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        full: bool = False,
        queue_limit: int = QUEUE_LIMIT,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
    ) -> Self:
        """Open the file, made when missing, and bring it up to this code.

        With `full`, each commit waits for the disk: it outlives a power cut, not only this process.
        """
        path = _absolute(path)
        clock = StoreClock()
        connection, disk = await anyio.to_thread.run_sync(_open, path, full, busy_timeout_s, clock)
        # What must outlive a power cut waits for the disk, which the loop must not.
        at_once = open_at_once(path) if isinstance(path, Path) and not full else None
        player = Player(clock)
        writer = GroupCommit(
            connection,
            queue_limit=queue_limit,
            explain=lambda error: _explained_to_caller(error, path),
            always_full=full,
            at_once=at_once,
            quick=frozenset({append_all}),
            short=frozenset({player.short}),
            notes=open_notes(path) if isinstance(path, Path) and at_once is not None else None,
            disk=disk,
        )
        # What is in memory is seen by its own connection alone.
        readers = SqliteReaders(path, busy_timeout_s=busy_timeout_s) if isinstance(path, Path) else None
        return cls(path, writer, readers, player)

    @property
    def commits(self) -> int:
        """How many transactions were committed: far fewer than jobs, under load."""
        return self._writer.commits

    def write(self, job: SqliteJob[Result], *, full: bool = False) -> Awaitable[Result]:
        """Run a job in the next group; done when it is committed, with `full` when it outlives a power cut too.

        A job that raises is rolled back alone. It may be run twice, so it changes nothing but the database.
        """
        return self._writer.submit(_each, job, full=full)

    async def read(self, job: SqliteJob[Result]) -> Result:
        """Run a job that only reads, beside the writer."""
        if self._is_closed:
            raise GatewayError("the store is closed")
        if self._readers is None:
            return await self.write(job)
        await self._writer.catch_up()
        try:
            found = await self._readers.read(job)
        except sqlite3.Error as error:
            raise explained(error, self.path, GatewayError) from error
        # It may have seen what is committed and on its way: whoever did that is not answered yet either.
        await self._writer.sync()
        return found

    async def facts(self) -> StoreFacts:
        """Say what the store is and how large."""
        return await self.read(lambda connection: _facts(connection, self.path))

    async def aclose(self) -> None:
        """Commit all that waits, and close the file."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._wakeups.aclose()
        if self._readers is not None:
            await self._readers.aclose()
        await self._writer.aclose()


def _absolute(path: str | Path) -> str | Path:
    # The process may change its folder before the first reader is opened.
    return path if path == MEMORY else Path(path).expanduser().absolute()


def _open(
    path: str | Path, full: bool, busy_timeout_s: float, clock: StoreClock
) -> tuple[sqlite3.Connection, Disk | None]:
    try:
        connection = open_writer(path, full=full, busy_timeout_s=busy_timeout_s)
        try:
            migrate(connection, known_migrations("sqlite"))
            look_at_clock(connection, clock)
            if isinstance(path, Path):
                take_over_notes(path, connection, append_all)
            disk = LateDisk(path.with_name(path.name + "-wal")) if isinstance(path, Path) else None
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise explained(error, path, BadConfiguration) from error
    return connection, disk


def _facts(connection: sqlite3.Connection, path: str | Path) -> StoreFacts:
    pages, page_bytes, migration = connection.execute(
        "SELECT page_count, page_size, (SELECT max(number) FROM migrations) FROM pragma_page_count, pragma_page_size"
    ).fetchone()
    return StoreFacts(
        url=f"sqlite:{path}",
        kind="sqlite",
        version=f"SQLite {sqlite3.sqlite_version}",
        migration=migration,
        size_bytes=pages * page_bytes,
    )


def _each(connection: sqlite3.Connection, jobs: Sequence[SqliteJob[Any]]) -> list[Any]:
    return [job(connection) for job in jobs]


def _explained_to_caller(error: BaseException, path: str | Path) -> Exception:
    if isinstance(error, sqlite3.Error):
        return explained(error, path, GatewayError)
    # A future takes neither of these.
    if isinstance(error, StopIteration) or not isinstance(error, Exception):
        return GatewayError(f"a job of the store ended with {type(error).__name__}")
    return error
