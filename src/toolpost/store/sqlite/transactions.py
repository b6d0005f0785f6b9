"""Groups of scripts as transactions on one connection. Knows no queue and no thread: calls must not overlap.

A group is committed in one of two ways:

- `begin` and `end`, on the event loop: they never wait. `begin` gives up at once if another process holds the write lock or a
  script fails, and `end` leaves the write-ahead log as it is, without a sync.
- `commit`, in a thread: it waits for the lock, finds the scripts that fail and keeps the others, syncs if the group asks for it,
  and moves a long write-ahead log into the database, which waits for the disk.
"""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from toolpost.metrics import Durations
from toolpost.store.scripts import Script

CHECKPOINT_PAGES: Final = 1_000
"""After how many pages SQLite moves the write-ahead log into the database: its own default."""

LONG_COMMITS: Final = 256
"""After how many commits on the loop, none of which moves the log, one in the thread has to: a few megabytes."""

Make = Callable[[], Script[Any]]
RunAll = Callable[[sqlite3.Connection, Sequence[Make]], Sequence[Any]]
"""Runs scripts within the transaction that is open, and returns a result for each."""


class Job:
    """A script to be run, and the future of its caller. A group leaves a result or an error in each of its jobs."""

    __slots__ = ("done", "durable", "error", "is_short", "make", "result")

    def __init__(self, make: Make, done: asyncio.Future[Any], *, durable: bool = False, is_short: bool = False) -> None:
        self.make = make
        self.done = done
        self.durable = durable
        self.is_short = is_short
        self.result: Any = None
        self.error: BaseException | None = None


Group = list[Job]


class _Mode(NamedTuple):
    """How the connection commits."""

    syncs: bool
    """Whether SQLite itself syncs the log before a commit returns (`synchronous = FULL`)."""
    moves_log: bool
    """Whether SQLite moves a long log into the database after a commit (`wal_autocheckpoint`)."""


_ON_LOOP: Final = _Mode(syncs=False, moves_log=False)


class Transactions:
    """Owns the connection that writes."""

    def __init__(self, connection: sqlite3.Connection, run_all: RunAll, *, always_durable: bool) -> None:
        self.commits = 0
        self.durations = Durations()
        self._began = 0.0
        self._connection = connection
        self._run_all = run_all
        self._always_durable = always_durable
        self._mode: _Mode | None = None
        self._unmoved = 0
        (self._busy_timeout_ms,) = connection.execute("PRAGMA busy_timeout").fetchone()
        # Only `commit` may wait for another process, and says so.
        connection.execute("PRAGMA busy_timeout = 0")

    @property
    def is_log_long(self) -> bool:
        """Whether the next group must be committed by `commit`, which moves the log into the database."""
        return self._unmoved >= LONG_COMMITS

    def commit(self, group: Group) -> None:
        """Run a group and commit it; scripts that fail are rolled back alone."""
        try:
            self._set_mode(_Mode(syncs=self._always_durable or any(job.durable for job in group), moves_log=True))
            if self.is_log_long:
                # Moved into the database, so that the next group starts it from its beginning. If that fails nothing is lost, the
                # log is only longer; the next commit raises what is wrong with the disk.
                self._unmoved = 0
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            self._begin_patiently()
            self._run(group)
        except BaseException as error:  # noqa: BLE001 - the callers wait for it, whatever it is
            self._give_up(group, error)
        else:
            self.end(group)

    def begin(self, group: Group) -> bool:
        """Run a group that `end` commits; False, with nothing changed, if another process writes or a script fails."""
        try:
            self._set_mode(_ON_LOOP)
            self._begin()
            self._run_together(group)
        except BaseException:  # noqa: BLE001 - it is run again by `commit`, which tells what is wrong
            self._roll_back()
            return False
        return True

    def end(self, group: Group) -> None:
        """Commit a group that was run."""
        try:
            self._connection.execute("COMMIT")
            self.commits += 1
            self.durations.observe(time.monotonic() - self._began)
            if self._mode == _ON_LOOP:
                self._unmoved += 1
        except BaseException as error:  # noqa: BLE001 - the callers wait for it, whatever it is
            self._give_up(group, error)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _give_up(self, group: Group, error: BaseException) -> None:
        self._roll_back()
        for job in group:
            job.error = error

    def _run(self, group: Group) -> None:
        try:
            self._run_together(group)
        except BaseException:
            if len(group) == 1:
                raise
            self._roll_back()
            self._begin_patiently()
            self._run_one_by_one(group)

    def _run_together(self, group: Group) -> None:
        results = self._run_all(self._connection, [job.make for job in group])
        for job, result in zip(group, results, strict=True):
            job.result = result

    def _run_one_by_one(self, group: Group) -> None:
        """Find the scripts that fail, and keep the others."""
        for job in group:
            self._connection.execute("SAVEPOINT job")
            try:
                (job.result,) = self._run_all(self._connection, [job.make])
            except BaseException as error:
                # SQLite itself ends the transaction when the disk fails: then there is nothing left to keep.
                if not self._connection.in_transaction:
                    raise
                self._connection.execute("ROLLBACK TO job")
                job.error = error
            self._connection.execute("RELEASE job")

    def _set_mode(self, mode: _Mode) -> None:
        if mode == self._mode:
            return
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if mode.syncs else 'NORMAL'}")
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES if mode.moves_log else 0}")
        self._mode = mode

    def _begin(self) -> None:
        # With the write lock from the start, what a script reads stays true until it is committed.
        self._began = time.monotonic()
        self._connection.execute("BEGIN IMMEDIATE")

    def _begin_patiently(self) -> None:
        self._connection.execute(f"PRAGMA busy_timeout = {self._busy_timeout_ms}")
        try:
            self._begin()
        finally:
            self._connection.execute("PRAGMA busy_timeout = 0")

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
