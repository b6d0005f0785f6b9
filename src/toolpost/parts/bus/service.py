"""The bus: tasks for workers, which are never lost. Every step is one transaction, which wakes the waiters it concerns."""

import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import anyio
import msgspec

from toolpost.base.caller import Caller
from toolpost.base.events import event
from toolpost.contracts.errors import ToolpostError
from toolpost.parts.bus import completion, polls, reports, results, submission
from toolpost.parts.bus.dispatch import Offer
from toolpost.parts.bus.metrics import BusMetrics
from toolpost.parts.bus.outbox import OUTBOX, OutboxSender, Tracker
from toolpost.parts.bus.polls import Polled
from toolpost.parts.bus.submission import Submission, Submitted
from toolpost.parts.bus.tasks import Lease, PollId, State, Task, TaskId, Times, WorkerName, next_poll
from toolpost.parts.bus.waiters import Waiter, WaitingPolls
from toolpost.shares import Callers
from toolpost.store import Store
from toolpost.store.scripts import Script

_log = logging.getLogger("toolpost.parts.bus")

CAPACITY: Final = 10_000
LOOK_S: Final = 14.0
"""How often is looked for what polls may have missed: a wake-up may be lost with the process that was to ring."""

LOOK_AGAIN_S: Final = 2.0
"""How often a waiter for tasks looks unasked. An end is announced if its transaction saw the waiter; on PostgreSQL one that
had begun just before did not, and a server of an older version announces nothing."""

_USUAL: Final = Times()

Result = TypeVar("Result")


class Bus:
    """Every operation on tasks and workers."""

    def __init__(
        self,
        store: Store,
        *,
        times: Times = _USUAL,
        capacity: int = CAPACITY,
        tracker: Tracker | None = None,
        metrics: BusMetrics | None = None,
        callers: Callers | None = None,
    ) -> None:
        """Take a store; with a tracker, its tasks must be there, and are kept in step."""
        self._store = store
        self._waiting = WaitingPolls()
        self.times = dataclasses.replace(times, is_tracked=tracker is not None, polls=self._waiting)
        self._capacity = capacity
        self._callers = callers or Callers()
        self._tracker = tracker
        self._metrics = metrics or BusMetrics()
        self.depth = reports.Depth()
        """As it was at the last look for what has expired, a few seconds ago."""

    @asynccontextmanager
    async def open_sweeping(self) -> AsyncIterator[None]:
        """Requeue expired tasks, and send updates to the tracker, until the block is left."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._sweep)
            if self._tracker is not None:
                tasks.start_soon(OutboxSender(self._store, self._tracker).run)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    # -- planners

    async def submit(self, new: Submission) -> Submitted:
        """Take a task in."""
        if self._tracker is not None:
            await self._tracker.check(new.task)
        make = partial(submission.submit, new, self.times, self._capacity, self._callers)
        # One that waits for others may wait for a lock too, which nobody else should wait for with it.
        submitted = await self._store.scripts.run(make, is_short=not new.needs)
        self._wake(submitted.offered)
        return submitted

    async def retry(self, task: TaskId, *, by: Caller) -> Submitted:
        """Queue a task again, whether it runs or is over."""
        submitted = await self._run(lambda: completion.retry(task, by, self.times))
        self._wake(submitted.offered)
        self._wake_outbox()
        return submitted

    async def cancel(self, task: TaskId, reason: str) -> Task:
        """Cancel a task, whichever worker has it."""
        ended, offered = await self._run(lambda: completion.cancel(task, self.times, reason))
        self._wake(offered)
        self._announce_end(task)
        return ended

    async def reset_worker(self, name: WorkerName, *, by: Caller, leaves: bool = False) -> TaskId | None:
        """Make a worker idle, or let it go for good; returns the task that went back to the queue."""
        task, offered = await self._run(lambda: completion.reset(name, by, self.times, leaves=leaves))
        self._ring(name)
        self._wake(offered)
        return task

    async def overview(self) -> reports.Overview:
        """Return all workers, and the tasks that are queued, held or in trouble."""
        return await self._store.scripts.read(reports.overview)

    async def history(self, task: TaskId) -> tuple[Task, list[reports.Event]]:
        """Return a task and its events; times are by the wall clock."""
        found, events = await self._store.scripts.read(lambda: reports.history(task))
        shown = msgspec.structs.replace(found, submitted_at=self.wall(found.submitted_at))
        return shown, [dataclasses.replace(one, at=self.wall(one.at)) for one in events]

    async def read_task(self, task: TaskId, *, by: Caller) -> results.TaskReport:
        """Read what became of a task, as far as this caller may; times are the store's (`wall`)."""
        return await self._store.scripts.read(lambda: results.read_task(task, by))

    async def list_tasks(
        self, states: Collection[State], *, by: Caller, limit: int, after: results.Position | None = None
    ) -> results.Page:
        """List tasks that this caller may read, those first whose state changed last."""
        return await self._store.scripts.read(lambda: results.list_tasks(states, by, limit, after))

    async def wait_tasks(
        self, tasks: Sequence[TaskId], wait_s: float, *, by: Caller, wants_all: bool
    ) -> tuple[list[results.Summary], dict[TaskId, str]]:
        """Wait until all of these tasks are over, or one of them; then, or when the time is up, tell how they stand.

        With the summaries come the results that fit into one answer, by task, as JSON.
        """

        async def is_enough() -> bool:
            found = await self._store.scripts.read(lambda: results.summarize(tasks, by))
            return (all if wants_all else any)(one.is_over for one in found)

        if wait_s > 0 and not await is_enough():
            with anyio.move_on_after(wait_s):
                await self._wait_for_ends(tasks, wait_s, is_enough)
        return await self._store.scripts.read(lambda: results.read_results(tasks, by))

    async def _wait_for_ends(
        self, tasks: Sequence[TaskId], wait_s: float, is_enough: Callable[[], Awaitable[bool]]
    ) -> None:
        waiter = next_poll()
        async with self._store.wakeups.open_listener(*map(_end_topic, tasks)) as listener:
            try:
                await self._run(lambda: results.watch(tasks, waiter, wait_s), full=False)
                while not await is_enough():
                    with anyio.move_on_after(LOOK_AGAIN_S):
                        await listener.wait()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._unwatch(tasks, waiter)

    async def _unwatch(self, tasks: Sequence[TaskId], waiter: PollId) -> None:
        try:
            await self._run(lambda: results.unwatch(tasks, waiter), full=False)
        except ToolpostError as error:
            # What is left behind is swept away when its time is up.
            event(_log, logging.DEBUG, "waiter not removed", reason=error.message)

    def wall(self, at: float) -> float:
        """Return what the wall clock shows at a moment of a task or a worker."""
        return self._store.scripts.wall(at)

    # -- workers

    async def register(self, name: str, owner: str, *, by: Caller) -> WorkerName:
        """Take a worker in, which only this caller may use; returns the name that it got.

        The same `owner` is the same registration, asked for again.
        """
        registered, offered = await self._run(lambda: polls.register(name, owner, by, self.times))
        self._wake(offered)
        return registered

    async def poll(self, name: WorkerName, wait_s: float, *, by: Caller) -> Polled:
        """Wait up to `wait_s` for a task; if cancelled, an offered task is queued again."""
        is_heard = False
        async with self._store.wakeups.open_listener(_topic(name)) as listener:
            waiter = Waiter(name, next_poll(), listener)
            self._waiting.join(waiter)
            try:
                polled = await self._wait_for_task(waiter, wait_s, by)
                is_heard = True
            finally:
                try:
                    if not is_heard:
                        await self._end_poll(name, waiter.poll, give_back=True)
                finally:
                    # Also if the store is away: what is offered to one who waits no more would reach nobody.
                    self._waiting.leave(waiter)
        if polled.task is not None:
            self._metrics.dispatches.add()
            self._metrics.dispatch_seconds.add(max(0.0, time.time() - self.wall(polled.task.changed_at)))
        return polled

    async def _wait_for_task(self, waiter: Waiter, wait_s: float, by: Caller) -> Polled:
        name, poll = waiter.name, waiter.poll
        started = await self._run_poll(lambda: polls.start_poll(name, poll, wait_s, by, self.times))
        if started.supersedes:
            self._ring(name)  # an older poll of this worker ends
        if _is_answer(started.polled):
            return started.polled
        waiter.resets = started.resets
        with anyio.move_on_after(wait_s):
            while True:
                await waiter.listener.wait()
                if waiter.task is not None:
                    return Polled(task=waiter.task)
                polled = await self._run_poll(lambda: polls.look(name, poll, started.resets, by, self.times))
                if _is_answer(polled):
                    return polled
        polled = await self._run_poll(lambda: polls.look(name, poll, started.resets, by, self.times))
        if not _is_answer(polled):
            await self._end_poll(name, poll, give_back=False)
        return polled

    async def _end_poll(self, name: WorkerName, poll: PollId, *, give_back: bool) -> None:
        with anyio.CancelScope(shield=True):
            self._wake(await self._run_poll(lambda: polls.end_poll(name, poll, self.times, give_back=give_back)))

    async def acknowledge(
        self, name: WorkerName, task: TaskId, token: str | None, *, by: Caller, renews: bool
    ) -> Lease:
        """Start an offered task, or extend the lease on a running one."""
        begun = await self._run(lambda: completion.acknowledge(name, task, token, by, self.times, renews=renews))
        self._wake_outbox()
        return begun

    async def done(self, task: TaskId, token: str | None, result: str | None, *, by: Caller) -> Lease:
        """End a task as done."""
        return await self._end(partial(completion.end, task, "done", token, by, self.times, result=result))

    async def failed(self, task: TaskId, token: str | None, reason: str, *, by: Caller) -> Lease:
        """End a task as blocked, with the reason."""
        return await self._end(partial(completion.end, task, "blocked", token, by, self.times, reason=reason))

    async def _end(self, make: Callable[[], Script[completion.EndedLease]]) -> Lease:
        ended = await self._run(make)
        self._wake(ended.offered)
        if ended.is_awaited:
            self._announce_end(ended.task.id)
        self._wake_outbox()
        return ended.task

    # -- periodic work

    async def _sweep(self) -> None:
        looked_at = anyio.current_time()
        has_shortened = False
        while True:
            wait_s: float | None = None
            try:
                if not has_shortened:
                    await self._run(lambda: completion.shorten_leases(self.times))
                    has_shortened = True
                if anyio.current_time() > looked_at + LOOK_S:
                    looked_at = anyio.current_time()
                    await self._look_for_polls()
                wait_s, offered, expired = await self._run(lambda: completion.sweep(self.times))
                for task in expired:
                    self._metrics.expiries.add(of="offer" if task.state == "offered" else "run")
                    if completion.is_given_up(task, self.times):
                        self._announce_end(task.id)
                self.depth = await self._store.scripts.read(reports.depth)
                self._wake(offered)
                self._wake_outbox()
            except ToolpostError as error:
                event(_log, logging.WARNING, "expired tasks not taken back", reason=error.message)
            limit_s = self.times.sweep_s
            await anyio.sleep(limit_s if wait_s is None else min(limit_s, max(0.01, wait_s)))

    async def _look_for_polls(self) -> None:
        """Wake polls that missed a wake-up, with one read for all of them."""
        if self._waiting:
            self._waiting.compare(await self._store.scripts.read(reports.polls))

    def _run(self, make: Callable[[], Script[Result]], *, full: bool = True) -> Awaitable[Result]:
        return self._store.scripts.run(make, full=full, is_short=True)

    def _run_poll(self, make: Callable[[], Script[Result]]) -> Awaitable[Result]:
        """Run a step of a poll without waiting for the disk: a power cut that undoes an offer ends its poll, too."""
        return self._run(make, full=False)

    def _wake(self, offered: Iterable[Offer]) -> None:
        for task, poll in offered:
            if poll is not None and task.worker and not (task.is_fetched and self._waiting.hand_over(poll, task)):
                self._ring(task.worker)

    def _wake_outbox(self) -> None:
        if self._tracker is not None:
            self._store.wakeups.ring(OUTBOX)

    def _ring(self, name: str) -> None:
        self._store.wakeups.ring(_topic(name))

    def _announce_end(self, task: TaskId) -> None:
        self._store.wakeups.ring(_end_topic(task))


def _topic(name: str) -> str:
    return f"bus worker {name}"


def _end_topic(task: TaskId) -> str:
    return f"bus task over {task}"


def _is_answer(polled: Polled) -> bool:
    return polled.task is not None or polled.is_superseded or polled.was_reset
