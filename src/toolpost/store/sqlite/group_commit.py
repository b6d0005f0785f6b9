"""The writer: queued scripts are committed as one group, by the event loop if that is quick, otherwise by a thread.

A transaction costs far more to commit than to run, whether it holds one script or fifty. So scripts wait until the end of the
current turn of the loop, and are committed together. A group takes one of two paths:

- *Short scripts: on the loop.* To wake a thread and be woken by it takes longer than the commit, which without a sync is a write
  to the page cache. If a caller needs the disk (`durable`), the log is synced after the commit, beside the loop (`sync.py`), and
  the group is answered then. If the file is locked or a script fails, the loop rolls back and leaves the group to the thread.
- *Long scripts, and groups that the loop could not commit: in the thread*, which may wait for a lock and for the disk, and finds
  the script that fails. Every 256th group goes there as well, to move the write-ahead log into the database.

Only one of the two works at a time, and only one group at a time is being synced. Scripts that come then are the next group:

    turn 1   a, b (durable, short), c (short)   -> c is committed and answered; a, b wait for one more turn, as c's caller may
    turn 2   d (durable, short)                    well go on with something that needs the disk
             a, b, d are committed, their sync begins
    turn 5   e (durable, short) comes            -> waits: a group of its own would write and sync the same pages again
    turn 9   the sync ends: a, b, d answered  -> e and what their callers did next are the next group

Callers wait for their own scripts, so they bound the queue; a group takes at most `LARGEST_GROUP`.
See docs/decisions/0013 and 0037 for the safety argument and the gain.
"""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final

import anyio
import anyio.to_thread

from toolpost.contracts.errors import GatewayError
from toolpost.metrics import Durations
from toolpost.store.scripts import Script
from toolpost.store.sqlite.sync import LogSync
from toolpost.store.sqlite.transactions import Group, Job, RunAll, Transactions

LARGEST_GROUP: Final = 4_096
"""How many scripts one transaction may hold: the loop is blocked while it commits."""


class GroupCommit:
    """Writes for callers on one event loop, through one connection that it owns and closes."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        run_all: RunAll,
        *,
        explain: Callable[[BaseException], Exception],
        sync: LogSync | None = None,
        always_durable: bool = False,
    ) -> None:
        """Start the thread. Without `sync` (a database in memory) nothing waits for a disk."""
        self._transactions = Transactions(connection, run_all, always_durable=always_durable)
        self._sync = sync
        self._always_durable = always_durable
        self._explain = explain
        self._loop = asyncio.get_running_loop()
        self._queue: Group = []
        """What is to be in the next groups, in order."""
        self._is_scheduled = False
        self._has_deferred = False
        """Whether the scripts that need the disk have already waited one more turn for others."""
        self._is_thread_busy = False
        self._pending = 0
        """How many scripts are queued, being committed, or on their way to the disk."""
        self._is_closing = False
        self._drained = asyncio.Event()
        self._for_thread: SimpleQueue[Group | None] = SimpleQueue()
        # A daemon: a loop that ended without closing the store must not keep the process alive.
        self._thread = threading.Thread(target=self._run_thread, name="toolpost-store", daemon=True)
        self._thread.start()

    @property
    def commits(self) -> int:
        """How many transactions were committed."""
        return self._transactions.commits

    @property
    def durations(self) -> Durations:
        """How long transactions took."""
        return self._transactions.durations

    def submit(
        self, make: Callable[[], Script[Any]], *, durable: bool = False, is_short: bool = False
    ) -> "asyncio.Future[Any]":
        """Queue a script; the future is done when it is committed, with `durable` when it is on the disk.

        To cancel the future does not take the script back.
        """
        if self._is_closing:
            raise GatewayError("the store is closed")
        if (durable or self._always_durable) and (failure := self._sync_failure()) is not None:
            raise self._explain(failure)
        done = self._loop.create_future()
        self._pending += 1
        self._queue.append(Job(make, done, durable=durable, is_short=is_short))
        self._schedule()
        return done

    def flush(self) -> None:
        """Commit what is queued without waiting for the end of this turn of the loop, if nothing is in the way."""
        self._commit_queue()

    async def wait_for_disk(self) -> None:
        """Wait until a group that is committed and on its way to the disk has arrived; raises if the disk has failed."""
        if self._sync is not None and self._sync.is_running:
            done = self._loop.create_future()
            self._pending += 1
            self._sync.join(Job(_nothing, done))
            await done

    async def aclose(self) -> None:
        """Commit what is queued, then end the thread; also for a caller that is being cancelled."""
        self._is_closing = True
        with anyio.CancelScope(shield=True):
            while self._pending:
                self._drained.clear()
                await self._drained.wait()
            if self._sync is not None:
                # Before the connection: closing the last one deletes the log.
                self._sync.close()
            self._for_thread.put(None)
            await anyio.to_thread.run_sync(self._thread.join)

    def _schedule(self) -> None:
        # At the end of this turn: what comes until then is in the same group.
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._commit_queue)

    def _commit_queue(self) -> None:
        self._is_scheduled = False
        if not self._queue:
            return  # `flush` was faster
        if self._is_thread_busy:
            # What is queued is the next group. If the loop committed it now, it would take turns with the thread at every
            # statement: at 1,300 bus tasks a second a worker then had its task after 5 to 18 ms instead of 2.
            return
        has_deferred, self._has_deferred = self._has_deferred, False
        queued, self._queue = self._queue[:LARGEST_GROUP], self._queue[LARGEST_GROUP:]
        for number, group in enumerate(self._split(queued)):
            if self._must_wait(group):
                self._queue = [*group, *self._queue]
                return  # the end of that one schedules this again
            if number and not has_deferred:
                # The callers of the first part were just answered: what they do next shares this sync instead of waiting for it.
                self._has_deferred = True
                self._queue = [*group, *self._queue]
                break
            self._commit(group)
        if self._queue:
            self._schedule()

    def _split(self, group: Group) -> list[Group]:
        """Put the scripts that need no disk into a group of their own, which comes first: its commit is quick."""
        if self._always_durable:
            return [group] if group else []
        parts = [job for job in group if not job.durable], [job for job in group if job.durable]
        return [part for part in parts if part]

    def _commit(self, group: Group) -> None:
        if self._needs_disk(group) and (failure := self._sync_failure()) is not None:
            for job in group:
                job.error = failure
            self._settle(group)
            return
        is_for_loop = not self._transactions.is_log_long and all(job.is_short for job in group)
        if is_for_loop and self._transactions.begin(group):
            self._transactions.end(group)
            if self._sync is not None and self._needs_disk(group) and group[0].error is None:
                self._sync.start(group, self._settle_and_go_on)
            else:
                self._settle(group)
        else:
            self._is_thread_busy = True
            self._for_thread.put(group)

    def _must_wait(self, group: Group) -> bool:
        return self._is_thread_busy or (self._needs_disk(group) and self._sync is not None and self._sync.is_running)

    def _needs_disk(self, group: Group) -> bool:
        # As it was split: all of its scripts do, or none.
        return self._always_durable or group[0].durable

    def _sync_failure(self) -> sqlite3.Error | None:
        return None if self._sync is None else self._sync.failure

    def _settle_and_go_on(self, group: Group) -> None:
        self._settle(group)
        if self._queue:
            # After the callers that were just answered, so that what they do next is in the same group.
            self._schedule()

    def _settle(self, group: Group) -> None:
        self._pending -= len(group)
        for job in group:
            if job.done.done():  # its caller was cancelled
                continue
            if job.error is None:
                job.done.set_result(job.result)
            else:
                job.done.set_exception(self._explain(job.error))
        if not self._pending:
            self._drained.set()

    def _end_thread_group(self, group: Group) -> None:
        self._is_thread_busy = False
        self._settle_and_go_on(group)

    def _run_thread(self) -> None:
        with contextlib.closing(self._transactions) as transactions:
            while (group := self._for_thread.get()) is not None:
                transactions.commit(group)
                # A loop that was closed has no callers left.
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._end_thread_group, group)


def _nothing() -> Script[None]:
    return
    yield
