"""Groups of jobs as transactions on one connection. Knows no queue and no thread: whoever calls, calls alone."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

CHECKPOINT_PAGES: Final = 1_000
"""After how many pages SQLite moves the write-ahead log into the database: its own default."""

LONG_COMMITS: Final = 256
"""After how many commits that leave the write-ahead log where it is one has to move it: a few megabytes, as they are short."""

Work = Callable[[sqlite3.Connection, Sequence[Any]], Sequence[Any]]
"""Does all items of its kind that are in a group, and returns a result for each.

It may be run again after a failure in its group was rolled back, so it changes nothing but the database.
"""


class Job:
    """An item, and whoever waits for it; nobody, once it was written down."""

    __slots__ = ("done", "error", "full", "item", "result", "work")

    def __init__(self, work: Work, item: Any, done: asyncio.Future[Any] | None, *, full: bool = False) -> None:
        self.work = work
        self.full = full
        self.item = item
        self.done = done
        self.result: Any = None
        self.error: BaseException | None = None


Group = list[Job]


class _Mode(NamedTuple):
    """How a commit goes."""

    waits: bool
    """For the disk."""
    moves: bool
    """The write-ahead log into the database, once that is long, which waits for the disk too."""


_HERE: Final = _Mode(waits=False, moves=False)


class Transactions:
    """What a group leaves behind is in its jobs: results, or errors."""

    def __init__(self, connection: sqlite3.Connection, *, always_full: bool) -> None:
        self.commits = 0
        self._connection = connection
        self._always_full = always_full
        self._mode: _Mode | None = None
        self._unmoved = 0
        (self._busy_timeout_ms,) = connection.execute("PRAGMA busy_timeout").fetchone()
        # Whoever may wait for another process says so.
        connection.execute("PRAGMA busy_timeout = 0")

    @property
    def is_log_long(self) -> bool:
        """Whether the next group is to be one that may wait: it moves the write-ahead log into the database."""
        return self._unmoved >= LONG_COMMITS

    def commit(self, group: Group) -> None:
        """Do a group and commit it; jobs that fail are found, and the others kept."""
        try:
            self._prepare(_Mode(waits=self._always_full or any(job.full for job in group), moves=True))
            if self.is_log_long:
                self._move_log()
            self._begin_patiently()
            self._work_on(group)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the callers wait for it
            self._give_up(group, error)
        else:
            self.end(group)

    def begin(self, group: Group) -> bool:
        """Do a group, to be ended without waiting; False, with nothing done, if another process writes or a job fails."""
        try:
            self._prepare(_HERE)
            self._begin()
            work_together(self._connection, group)
        except BaseException:  # noqa: BLE001 - it is done again, and then said what is wrong
            roll_back(self._connection)
            return False
        return True

    def end(self, group: Group) -> None:
        """Commit a group that was done."""
        try:
            self._connection.execute("COMMIT")
            self.commits += 1
            if self._mode == _HERE:
                self._unmoved += 1
        except BaseException as error:  # noqa: BLE001 - whatever it is, the callers wait for it
            self._give_up(group, error)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _give_up(self, group: Group, error: BaseException) -> None:
        roll_back(self._connection)
        for job in group:
            job.error = error

    def _work_on(self, group: Group) -> None:
        try:
            work_together(self._connection, group)
        except BaseException:
            if len(group) == 1:
                raise
            roll_back(self._connection)
            self._begin_patiently()
            self._work_one_by_one(group)

    def _work_one_by_one(self, group: Group) -> None:
        """Find the jobs that fail, and keep the others."""
        for job in group:
            self._connection.execute("SAVEPOINT job")
            try:
                (job.result,) = job.work(self._connection, [job.item])
            except BaseException as error:
                # SQLite itself ends the transaction when the disk fails: then nothing is left to keep.
                if not self._connection.in_transaction:
                    raise
                self._connection.execute("ROLLBACK TO job")
                job.error = error
            self._connection.execute("RELEASE job")

    def _prepare(self, mode: _Mode) -> None:
        if mode == self._mode:
            return
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if mode.waits else 'NORMAL'}")
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES if mode.moves else 0}")
        self._mode = mode

    def _move_log(self) -> None:
        """Move the log before this group, which then begins it anew: that waits for the disk too, whoever does it."""
        self._unmoved = 0
        # If it fails nothing is lost, and the log is only longer; what is wrong with the disk is said by the commit.
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _begin(self) -> None:
        # With the write lock from the start, what a job reads stays true until it is committed.
        self._connection.execute("BEGIN IMMEDIATE")

    def _begin_patiently(self) -> None:
        self._connection.execute(f"PRAGMA busy_timeout = {self._busy_timeout_ms}")
        try:
            self._begin()
        finally:
            self._connection.execute("PRAGMA busy_timeout = 0")


def work_together(connection: sqlite3.Connection, group: Group) -> None:
    """Do a group within a transaction, kind by kind."""
    kinds: dict[Work, Group] = {}
    for job in group:
        kinds.setdefault(job.work, []).append(job)
    for work, jobs in kinds.items():
        results = work(connection, [job.item for job in jobs])
        for job, result in zip(jobs, results, strict=True):
            job.result = result


def roll_back(connection: sqlite3.Connection) -> None:
    """Undo what was begun, if anything was."""
    with contextlib.suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
