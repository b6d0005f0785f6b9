"""A store in one SQLite file: one connection that writes, a few that read and never wait for it."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Self

import anyio.to_thread

from toolpost.base.events import event
from toolpost.contracts.errors import BadConfiguration, GatewayError
from toolpost.store.audit import AuditLog, append_entries, append_missing
from toolpost.store.audit_values import AuditEntry
from toolpost.store.base import Store, StoreFacts
from toolpost.store.call_journal import AbandonedCalls, CallJournal
from toolpost.store.chain import Values
from toolpost.store.clock import StoreClock
from toolpost.store.migrate import list_migrations
from toolpost.store.scripts import Script, Statement
from toolpost.store.sqlite.connection import begin_immediate, explain_error, migrate, open_writer
from toolpost.store.sqlite.group_commit import GroupCommit
from toolpost.store.sqlite.journal import JournaledAuditLog, open_journal, recover_journals
from toolpost.store.sqlite.scripts import ScriptRunner, SqliteReaders, SqliteScripts, synchronize_clock
from toolpost.store.sqlite.sync import LogSync
from toolpost.store.sqlite.wakeups import SqliteWakeups
from toolpost.store.urls import MEMORY

_log = logging.getLogger("toolpost.store")

BUSY_TIMEOUT_S = 10.0


class SqliteStore(Store):
    """One database file, which other processes may have open as well."""

    def __init__(
        self, path: str | Path, writer: GroupCommit, scripts: SqliteScripts, audit: AuditLog, wakeups: SqliteWakeups
    ) -> None:
        super().__init__(scripts=scripts, audit=audit, wakeups=wakeups, commits=writer.durations)
        self.path = path
        self._writer = writer
        self._scripts = scripts
        self._wakeups = wakeups
        self._is_closed = False

    @classmethod
    async def open(cls, path: str | Path, *, durable: bool = False, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Self:
        """Open the file, created when missing, and apply the migrations that it lacks.

        With `durable`, each commit waits for the disk: it survives a power cut, not only the end of this process.
        """
        path = _absolute(path)
        runner = ScriptRunner(StoreClock())
        explain = partial(_explain, path=path)
        connection, sync, lost_calls = await anyio.to_thread.run_sync(_open, path, durable, busy_timeout_s, runner)
        writer = GroupCommit(connection, runner.run_all, explain=explain, sync=sync, always_durable=durable)
        readers = SqliteReaders(path, busy_timeout_s=busy_timeout_s) if isinstance(path, Path) else None
        scripts = SqliteScripts(runner, writer, readers, explain=explain)
        # What must survive a power cut waits for the disk, and a journal in the page cache is of no use to it.
        journal = open_journal(path) if isinstance(path, Path) and not durable else None
        write = partial(_append, writer)
        calls = CallJournal(_calls_of(path)) if isinstance(path, Path) else None
        audit = (
            AuditLog(scripts, write, calls)
            if journal is None or calls is None
            else JournaledAuditLog(scripts, write, journal, calls)
        )
        store = cls(path, writer, scripts, audit, SqliteWakeups(path))
        store.lost_calls = lost_calls
        return store

    @property
    def commits(self) -> int:
        """How many transactions were committed: far fewer than scripts, under load."""
        return self._writer.commits

    async def facts(self) -> StoreFacts:
        """Return what the store is and how large."""
        return await self.scripts.read(lambda: _facts(self.path))

    async def aclose(self) -> None:
        """Commit what is queued, and close the file."""
        if self._is_closed:
            return
        self._is_closed = True
        with anyio.CancelScope(shield=True):
            await self._wakeups.aclose()
            await self.audit.aclose()
            await self._scripts.aclose()
            await self._writer.aclose()


def _absolute(path: str | Path) -> str | Path:
    # The process may change its folder before the first reader is opened.
    return path if path == MEMORY else Path(path).expanduser().absolute()


def _open(
    path: str | Path, durable: bool, busy_timeout_s: float, runner: ScriptRunner
) -> tuple[sqlite3.Connection, LogSync | None, int]:
    """Return the connection, how its log is made durable, and the number of calls that were lost."""
    try:
        connection = open_writer(path, durable=durable, busy_timeout_s=busy_timeout_s)
        try:
            migrate(connection, list_migrations("sqlite"))
            synchronize_clock(connection, runner.clock)
            if not isinstance(path, Path):
                return connection, None, 0

            def append(entries: Sequence[AuditEntry]) -> None:
                with begin_immediate(connection):
                    runner.run_script(connection, append_missing(entries))

            recover_journals(path, append)
            # After the journals: a call that was answered is in one of them.
            lost_calls = _record_lost(path, append)
            return connection, LogSync(path.with_name(path.name + "-wal")), lost_calls
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise explain_error(error, path, BadConfiguration) from error


def _calls_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-calls-")


def _record_lost(path: Path, append: Callable[[Sequence[AuditEntry]], None]) -> int:
    """Record the calls that killed processes have left in flight, each once; returns how many they are."""
    with closing(AbandonedCalls(_calls_of(path))) as abandoned:
        try:
            if abandoned.entries:
                append(abandoned.entries)
        except (GatewayError, sqlite3.Error) as error:
            event(_log, logging.WARNING, "lost calls not recorded", reason=str(error))
            return 0
        abandoned.delete()
        return len(abandoned.entries)


def _append(writer: GroupCommit, entries: Sequence[Values]) -> "asyncio.Future[None]":
    done = writer.submit(lambda: append_entries(entries), is_short=True)
    # The batch was gathered until the end of a turn of the loop: there is no reason to wait for the end of the next one.
    writer.flush()
    return done


def _facts(path: str | Path) -> Script[StoreFacts]:
    ((pages, page_bytes, migration),) = yield Statement(
        "SELECT page_count, page_size, (SELECT max(number) FROM migrations) FROM pragma_page_count, pragma_page_size"
    )
    return StoreFacts(
        url=f"sqlite:{path}",
        kind="sqlite",
        version=f"SQLite {sqlite3.sqlite_version}",
        migration=migration,
        size_bytes=pages * page_bytes,
    )


def _explain(error: BaseException, *, path: str | Path) -> Exception:
    """Return the exception that a caller gets for an error in its script."""
    if isinstance(error, sqlite3.Error):
        return explain_error(error, path, GatewayError)
    # A future takes neither of these.
    if isinstance(error, StopIteration) or not isinstance(error, Exception):
        return GatewayError(f"a script of the store ended with {type(error).__name__}")
    return error
