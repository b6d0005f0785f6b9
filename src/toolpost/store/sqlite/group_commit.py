"""The writer: everything that waits is committed in one transaction, then everyone is told at once."""

import asyncio
import contextlib
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from itertools import islice
from queue import SimpleQueue
from typing import Any

import anyio
import anyio.to_thread

from toolpost.base.events import event
from toolpost.contracts.errors import GatewayError
from toolpost.store.sqlite.disk import Disk
from toolpost.store.sqlite.journal import Notes
from toolpost.store.sqlite.sync import Syncing
from toolpost.store.sqlite.transactions import Group, Job, Transactions, Work, roll_back, work_together

_log = logging.getLogger("toolpost.store")

AT_ONCE_IN_A_ROW = 256
NOTED_S = 0.005
"""How long what is written down may wait for others to be committed with."""


class _Done:
    """Something that need not be waited for."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


_DONE = _Done()


class GroupCommit:
    """Writes for callers on one event loop, through one connection that it owns and closes."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        queue_limit: int,
        explain: Callable[[BaseException], Exception],
        always_full: bool = False,
        at_once: sqlite3.Connection | None = None,
        quick: frozenset[Work] = frozenset(),
        short: frozenset[Work] = frozenset(),
        notes: Notes | None = None,
        disk: Disk | None = None,
    ) -> None:
        """Make the thread; with `at_once`, a connection that never waits, the loop itself commits work that is `quick`.

        With `notes`, an item of such work that comes alone is written down there, which is as good as a commit.
        Work that is `short` is done and committed by the loop; `disk` is where its write-ahead log is, if it has any.
        """
        self._transactions = Transactions(connection, always_full=always_full)
        self._at_once_commits = 0
        self._always_full = always_full
        self._at_once = at_once
        self._quick = quick
        self._short = short
        self._syncing = None if disk is None else Syncing(disk, settle=self._settle_and_go_on)
        self._has_waited = False
        self._is_handed_over = False
        self._in_a_row = 0
        self._queue_limit = queue_limit
        self._explain = explain
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Group | None] = SimpleQueue()
        self._fresh: Group = []
        self._notes = notes
        self._noted = 0
        self._is_called = False
        self._timer: asyncio.TimerHandle | None = None
        self._pending = 0
        self._line: deque[asyncio.Future[None]] = deque()
        self._is_closing = False
        self._has_ended = False
        self._drained = asyncio.Event()
        # A daemon: a loop that ended without closing the store must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="toolpost-store", daemon=True)
        self._thread.start()

    @property
    def commits(self) -> int:
        """How many transactions were committed."""
        return self._transactions.commits + self._at_once_commits

    @property
    def pending(self) -> int:
        """How many jobs are queued or being committed."""
        return self._pending

    @property
    def waiting(self) -> int:
        """How many callers wait for room in the queue."""
        return len(self._line)

    def submit(self, work: Work, item: Any, *, alone: bool = False, full: bool = False) -> Awaitable[Any]:
        """Have an item worked on; done when it is committed, with `full` when it is on the disk.

        One that comes alone need not wait for others to come.
        """
        if self._is_closing:
            raise GatewayError("the store is closed")
        if (full or self._always_full) and (failure := self._disk_failure()) is not None:
            raise self._explain(failure)
        if self._is_full():
            return self._submit_when_there_is_room(work, item, full=full)
        if alone and self.note(work, item):
            return _DONE
        return self._enqueue(work, item, full=full)

    async def catch_up(self) -> None:
        """Wait until what was written down is committed, where others can read it."""
        if self._noted:
            await self._enqueue(_nothing, None, full=False)

    async def sync(self) -> None:
        """Wait until what others have read is on the disk, as far as anybody waits for that."""
        if self._syncing is not None and self._syncing.is_under_way:
            seen = self._loop.create_future()
            self._pending += 1
            self._syncing.join(Job(_nothing, None, seen))
            await seen

    async def aclose(self) -> None:
        """Commit all that waits, then end the thread, also for a caller who is being cancelled."""
        self._is_closing = True
        with anyio.CancelScope(shield=True):
            while self._pending or self._line:
                self._drained.clear()
                await self._drained.wait()
            self._has_ended = True
            if self._syncing is not None:
                # Before the connection: who closes the last one takes the log away.
                self._syncing.close()
            self._queue.put(None)
            await anyio.to_thread.run_sync(self._thread.join)
            if self._at_once is not None:
                self._at_once.close()
            if self._notes is not None:
                self._notes.close()

    def _enqueue(self, work: Work, item: Any, *, full: bool) -> asyncio.Future[Any]:
        done = self._loop.create_future()
        self._pending += 1
        # What comes in the same turn of the loop is handed over together: a thread that is woken takes the lock.
        self._call()
        self._fresh.append(Job(work, item, done, full=full))
        return done

    def note(self, work: Work, item: Any) -> bool:
        """Write an item down, to be committed in a moment; False if that cannot be done, and `submit` is needed."""
        if self._notes is None or self._is_closing or self._is_full() or work not in self._quick:
            return False
        if not self._notes.add(item):
            return False
        self._pending += 1
        self._noted += 1
        self._fresh.append(Job(work, item, None))
        if self._timer is None:
            self._timer = self._loop.call_later(NOTED_S, self._hand_over)
        return True

    def _stop_noting(self, error: BaseException) -> None:
        """From now on everybody waits for the commit, and is told what is wrong; the notes are kept for the next start."""
        event(_log, logging.ERROR, "audit notes given up", exception=error)
        if self._notes is not None:
            self._notes.close()
            self._notes = None

    def _hand_over(self) -> None:
        self._is_called = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_handed_over:
            return  # what comes meanwhile is the next group: the loop takes no turns with the thread at its statements
        has_waited, self._has_waited = self._has_waited, False
        fresh, self._fresh = self._fresh, []
        for number, group in enumerate(self._parted(fresh)):
            if self._must_wait(group):
                # What comes meanwhile is one group: each commit writes its pages anew.
                self._fresh = [*group, *self._fresh]
                return
            if number and not has_waited:
                # Those who were just answered say next what they do: it waits for the disk with this group, not after it.
                self._has_waited = True
                self._fresh = [*group, *self._fresh]
                self._call()
                return
            self._place(group)

    def _must_wait(self, group: Group) -> bool:
        return self._is_handed_over or (self._is_syncing() and self._is_for_disk(group))

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon(self._hand_over)

    def _place(self, group: Group) -> None:
        """Have a group committed by whom it costs least."""
        if self._is_for_disk(group) and (failure := self._disk_failure()) is not None:
            for job in group:
                job.error = failure
            self._settle(group)
            return
        if self._may_commit_at_once(group) and self._committed_at_once(group):
            self._settle(group)
            return
        if self._may_work_here(group) and self._transactions.begin(group):
            self._end_here(group)
            return
        self._in_a_row = 0
        self._is_handed_over = True
        self._queue.put(group)

    def _may_commit_at_once(self, group: Group) -> bool:
        """To wake the thread would cost more than the commit itself.

        Now and then it gets a group all the same, and with it the chance to move the write-ahead log into the database.
        """
        if self._at_once is None or any(job.full or job.work not in self._quick for job in group):
            return False
        return self._in_a_row < AT_ONCE_IN_A_ROW

    def _may_work_here(self, group: Group) -> bool:
        # While the thread has nothing to do, its connection is free.
        return not self._transactions.is_log_long and all(job.work in self._short for job in group)

    def _end_here(self, group: Group) -> None:
        self._transactions.end(group)
        if self._syncing is not None and self._is_for_disk(group) and group[0].error is None:
            self._syncing.start(group)
        else:
            self._settle(group)

    def _is_for_disk(self, group: Group) -> bool:
        # As it was parted: all of them wait for the disk, or none.
        return self._always_full or group[0].full

    def _disk_failure(self) -> sqlite3.Error | None:
        return None if self._syncing is None else self._syncing.failure

    def _is_syncing(self) -> bool:
        return self._syncing is not None and self._syncing.is_under_way

    def _committed_at_once(self, group: Group) -> bool:
        """Commit on the loop's own thread; False leaves it to the writer, which can wait and can find a culprit."""
        assert self._at_once is not None
        try:
            self._at_once.execute("BEGIN IMMEDIATE")
            work_together(self._at_once, group)
            self._at_once.execute("COMMIT")
        except BaseException:  # noqa: BLE001 - the writer does it again, and says what is wrong
            roll_back(self._at_once)
            return False
        self._at_once_commits += 1
        self._in_a_row += 1
        return True

    def _is_full(self) -> bool:
        # Whoever finds a line joins it. There is none without something pending, which will move it on.
        return bool(self._line) or self._pending >= self._queue_limit

    async def _submit_when_there_is_room(self, work: Work, item: Any, *, full: bool) -> Any:
        # The caller's first step may come late: by now there may be room, or no writer.
        if self._has_ended:
            raise GatewayError("the store is closed")
        if self._is_full():
            return await self._submit_from_the_line(work, item, full=full)
        return await self._enqueue(work, item, full=full)

    async def _submit_from_the_line(self, work: Work, item: Any, *, full: bool) -> Any:
        room = self._loop.create_future()
        self._line.append(room)
        try:
            await room
        finally:
            # Whoever is cancelled here goes over the limit by one: better than an entry that is lost.
            self._line.remove(room)
            done = self._enqueue(work, item, full=full)
        return await done

    def _settle_handed_over(self, group: Group) -> None:
        self._is_handed_over = False
        self._settle_and_go_on(group)

    def _settle_and_go_on(self, group: Group) -> None:
        self._settle(group)
        if self._fresh:
            # After those who were just told, so that what they do next is in the same group.
            self._call()

    def _settle(self, group: Group) -> None:
        self._pending -= len(group)
        self._settle_noted([job for job in group if job.done is None])
        for job in group:
            if job.done is None or job.done.done():  # its caller was cancelled
                continue
            if job.error is None:
                job.done.set_result(job.result)
            else:
                job.done.set_exception(self._explain(job.error))
        self._let_in()

    def _settle_noted(self, noted: Group) -> None:
        self._noted -= len(noted)
        if error := next((job.error for job in noted if job.error is not None), None):
            self._stop_noting(error)
        elif noted and not self._noted and self._notes is not None:
            self._notes.clear()

    def _let_in(self) -> None:
        # They leave the line when they run, so until then nobody takes their place.
        for room in islice(self._line, max(0, self._queue_limit - self._pending)):
            if not room.done():
                room.set_result(None)
        if not self._pending and not self._line:
            self._drained.set()

    def _run(self) -> None:
        """Do what is handed over, in the thread."""
        with contextlib.closing(self._transactions) as transactions:
            while (group := self._queue.get()) is not None:
                transactions.commit(group)
                # A loop that was closed has nobody left who waits.
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._settle_handed_over, group)

    def _parted(self, group: Group) -> list[Group]:
        """Let those who need not wait for the disk go first: their commit costs little, and the others' is not theirs."""
        if self._always_full:
            return [group] if group else []
        first = [job for job in group if not job.full]
        return [part for part in (first, [job for job in group if job.full]) if part]


def _nothing(_connection: sqlite3.Connection, items: Sequence[Any]) -> Sequence[Any]:
    return items
