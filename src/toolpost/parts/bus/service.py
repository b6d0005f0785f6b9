"""The bus: every operation on tasks and workers, their long polls, and the periodic sweep.

An operation runs one script of the other modules as a transaction, then wakes the polls that it concerns. Polls are woken in
memory if they wait in this process, and through the wake-ups of the store if they wait in another. A wake-up may be lost, so each
wait is also checked at intervals.
"""

import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import anyio
import msgspec

from toolpost import Caller, ToolpostError
from toolpost.base import event
from toolpost.fairness import Callers
from toolpost.metrics import Counter, Metrics
from toolpost.parts.bus import leases, reports, status, submission, workers
from toolpost.parts.bus.dispatch import Offer
from toolpost.parts.bus.outbox import OUTBOX, OutboxSender, Tracker
from toolpost.parts.bus.settings import BUS
from toolpost.parts.bus.submission import Submission, SubmitResult
from toolpost.parts.bus.tasks import BusPolicy, BusTask, LeasedTask, PollId, State, TaskId, WorkerName, new_poll_id
from toolpost.parts.bus.waiters import Waiter, WaitingPolls
from toolpost.parts.bus.workers import PollAnswer
from toolpost.store import Script, Store

_log = logging.getLogger("toolpost.parts.bus")

CHECK_POLLS_S: Final = 14.0
"""How often waiting polls are compared with the store: a process may end after its commit and before its wake-up."""

RECHECK_S: Final = 2.0
"""How often `wait_tasks` reads without a wake-up. The transaction that ends a task rings only if it sees the waiter; one that
started just before does not (on PostgreSQL), and a server of an older version never rings."""

_DEFAULT_POLICY: Final = BusPolicy()

Result = TypeVar("Result")


class BusMetrics:
    """Counters, registered with the metrics of a gateway if one is given; the gauges are in `part.py`."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        metrics = metrics or Metrics()
        self.dispatches = metrics.add(
            Counter("toolpost_bus_dispatches_total", "Tasks given to workers that polled for one.")
        )
        self.dispatch_seconds = metrics.add(
            Counter("toolpost_bus_dispatch_seconds_total", "Time from the offer of a task until its worker has it.")
        )
        self.expiries = metrics.add(
            Counter(
                "toolpost_bus_expiries_total",
                "Tasks taken back because their lease expired, by kind of lease.",
                label="lease",
            )
        )


class Bus:
    """Every operation on tasks and workers. Several buses, in several processes, may share a store."""

    def __init__(
        self,
        store: Store,
        *,
        policy: BusPolicy = _DEFAULT_POLICY,
        capacity: int = BUS.default.capacity,
        tracker: Tracker | None = None,
        metrics: BusMetrics | None = None,
        callers: Callers | None = None,
    ) -> None:
        """With a tracker, only tasks that it has can be submitted, and it gets an update for each change."""
        self._store = store
        self._waiting = WaitingPolls()
        self.policy = dataclasses.replace(policy, is_tracked=tracker is not None, polls=self._waiting)
        self._capacity = capacity
        self._callers = callers or Callers()
        self._tracker = tracker
        self._metrics = metrics or BusMetrics()
        self.depth = status.Depth()
        """Counts of the last sweep, a few seconds old."""

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

    async def submit(self, new: Submission) -> SubmitResult:
        """Store a task, and offer it if a worker is free; raises `InvalidRequest` if it runs or has ended already."""
        if self._tracker is not None:
            await self._tracker.check(new.task)
        make = partial(submission.submit, new, self.policy, self._capacity, self._callers)
        # A task with dependencies takes a lock across gateways: not in a group, where other scripts would wait with it.
        submitted = await self._store.scripts.run(make, is_short=not new.needs)
        self._wake(submitted.offered)
        return submitted

    async def retry(self, task: TaskId, *, by: Caller) -> SubmitResult:
        """Queue a task again, whether it is running or has ended."""
        submitted = await self._run(lambda: leases.retry(task, by, self.policy))
        self._wake(submitted.offered)
        self._wake_outbox()
        return submitted

    async def cancel(self, task: TaskId, reason: str) -> BusTask:
        """Cancel a task. A worker that runs it is not interrupted: its result is refused."""
        ended, offered = await self._run(lambda: leases.cancel(task, self.policy, reason))
        self._wake(offered)
        self._ring_end(task)
        return ended

    async def reset_worker(self, name: WorkerName, *, by: Caller, leaves: bool = False) -> TaskId | None:
        """Make a worker idle, or with `leaves` delete it; return the task that was queued again."""
        task, offered = await self._run(lambda: leases.reset(name, by, self.policy, leaves=leaves))
        self._ring(name)
        self._wake(offered)
        return task

    async def overview(self) -> status.Overview:
        """Return all workers, and the tasks that are queued, held or in trouble."""
        return await self._store.scripts.read(status.overview)

    async def history(self, task: TaskId) -> tuple[BusTask, list[status.Event]]:
        """Return a task and its events; times are by the wall clock."""
        found, events = await self._store.scripts.read(lambda: status.history(task))
        found = msgspec.structs.replace(found, submitted_at=self.wall(found.submitted_at))
        return found, [dataclasses.replace(one, at=self.wall(one.at)) for one in events]

    async def read_task(self, task: TaskId, *, by: Caller) -> reports.TaskReport:
        """Read a task, as much of it as this caller may; times are the store's (convert them with `wall`)."""
        return await self._store.scripts.read(lambda: reports.read_task(task, by))

    async def list_tasks(
        self, states: Collection[State], *, by: Caller, limit: int, after: reports.Position | None = None
    ) -> reports.TaskPage:
        """List the tasks that this caller may read, the latest change of state first."""
        return await self._store.scripts.read(lambda: reports.list_tasks(states, by, limit, after))

    async def wait_tasks(
        self, tasks: Sequence[TaskId], wait_s: float, *, by: Caller, wants_all: bool
    ) -> tuple[list[reports.Summary], dict[TaskId, str]]:
        """Wait until all of these tasks have ended, or one of them, at most `wait_s`; return their summaries.

        With them come the results that fit into one answer, by task, as JSON.
        """

        async def has_ended() -> bool:
            summaries = await self._store.scripts.read(lambda: reports.summarize(tasks, by))
            return (all if wants_all else any)(summary.has_ended for summary in summaries)

        if wait_s > 0 and not await has_ended():
            with anyio.move_on_after(wait_s):
                await self._wait_for_ends(tasks, wait_s, has_ended)
        return await self._store.scripts.read(lambda: reports.read_results(tasks, by))

    async def _wait_for_ends(
        self, tasks: Sequence[TaskId], wait_s: float, has_ended: Callable[[], Awaitable[bool]]
    ) -> None:
        waiter = new_poll_id()
        async with self._store.wakeups.open_listener(*map(_end_topic, tasks)) as listener:
            try:
                await self._run(lambda: reports.watch(tasks, waiter, wait_s), durable=False)
                while not await has_ended():
                    with anyio.move_on_after(RECHECK_S):
                        await listener.wait()
            finally:
                with anyio.CancelScope(shield=True):
                    try:
                        await self._run(lambda: reports.unwatch(tasks, waiter), durable=False)
                    except ToolpostError as error:
                        # The sweep deletes the row when its time is over.
                        event(_log, logging.DEBUG, "waiter not removed", reason=error.message)

    def wall(self, at: float) -> float:
        """Convert a time of the store (`store/clock.py`) to the wall clock."""
        return self._store.scripts.wall(at)

    # -- workers

    async def register(self, name: str, registration_key: str, *, by: Caller) -> WorkerName:
        """Register a worker, which only this caller may use; return its name, which has a number if `name` is taken.

        The same `registration_key` gets the same worker again: a client may repeat a registration whose answer was lost.
        """
        registered, offered = await self._run(lambda: workers.register(name, registration_key, by, self.policy))
        self._wake(offered)
        return registered

    async def poll(self, name: WorkerName, wait_s: float, *, by: Caller) -> PollAnswer:
        """Wait up to `wait_s` for a task; if cancelled, an offered task is queued again."""
        is_answered = False
        async with self._store.wakeups.open_listener(_topic(name)) as listener:
            waiter = Waiter(name, new_poll_id(), listener)
            self._waiting.join(waiter)
            try:
                answer = await self._wait_for_task(waiter, wait_s, by)
                is_answered = True
            finally:
                try:
                    if not is_answered:
                        await self._end_poll(name, waiter.poll, give_back=True)
                finally:
                    # Also if the store failed: a task handed to a poll that has ended would be lost until its lease expires.
                    self._waiting.leave(waiter)
        if answer.task is not None:
            self._metrics.dispatches.add()
            self._metrics.dispatch_seconds.add(max(0.0, time.time() - self.wall(answer.task.changed_at)))
        return answer

    async def _wait_for_task(self, waiter: Waiter, wait_s: float, by: Caller) -> PollAnswer:
        name, poll = waiter.name, waiter.poll
        started = await self._run_poll(lambda: workers.start_poll(name, poll, wait_s, by, self.policy))
        if started.supersedes:
            self._ring(name)  # so that the older poll of this worker ends
        if not started.answer.is_empty:
            return started.answer
        waiter.resets = started.resets
        with anyio.move_on_after(wait_s):
            while True:
                await waiter.listener.wait()
                if waiter.task is not None:
                    return PollAnswer(task=waiter.task)
                answer = await self._run_poll(lambda: workers.check_poll(name, poll, started.resets, by, self.policy))
                if not answer.is_empty:
                    return answer
        # Once more after the timeout: a task that was offered to this poll just now is not lost.
        answer = await self._run_poll(lambda: workers.check_poll(name, poll, started.resets, by, self.policy))
        if answer.is_empty:
            await self._end_poll(name, poll, give_back=False)
        return answer

    async def _end_poll(self, name: WorkerName, poll: PollId, *, give_back: bool) -> None:
        with anyio.CancelScope(shield=True):
            self._wake(await self._run_poll(lambda: workers.end_poll(name, poll, self.policy, give_back=give_back)))

    async def acknowledge(
        self, name: WorkerName, task: TaskId, token: str | None, *, by: Caller, renews: bool
    ) -> LeasedTask:
        """Start an offered task, or extend the lease on a running one."""
        lease = await self._run(lambda: leases.acknowledge(name, task, token, by, self.policy, renews=renews))
        self._wake_outbox()
        return lease

    async def complete(self, task: TaskId, token: str | None, result: str | None, *, by: Caller) -> LeasedTask:
        """End a task as done."""
        return await self._end(partial(leases.end, task, "done", token, by, self.policy, result=result))

    async def fail(self, task: TaskId, token: str | None, reason: str, *, by: Caller) -> LeasedTask:
        """End a task as blocked, with the reason."""
        return await self._end(partial(leases.end, task, "blocked", token, by, self.policy, reason=reason))

    async def _end(self, make: Callable[[], Script[leases.EndResult]]) -> LeasedTask:
        ended = await self._run(make)
        self._wake(ended.offered)
        if ended.is_awaited:
            self._ring_end(ended.task.id)
        self._wake_outbox()
        return ended.task

    # -- periodic work

    async def _sweep(self) -> None:
        """Expire leases until cancelled; a failure of the store is logged, and tried again."""
        polls_checked_at = anyio.current_time()
        has_shortened = False
        while True:
            wait_s: float | None = None
            try:
                if not has_shortened:
                    # Here and not before: a store that is unreachable at the start is retried.
                    await self._run(lambda: leases.shorten_leases(self.policy))
                    has_shortened = True
                if anyio.current_time() > polls_checked_at + CHECK_POLLS_S:
                    polls_checked_at = anyio.current_time()
                    if self._waiting:
                        # One read for all of them.
                        self._waiting.compare(await self._store.scripts.read(status.list_polling_workers))
                wait_s, offered, expired = await self._run(lambda: leases.sweep(self.policy))
                for task in expired:
                    self._metrics.expiries.add(of="offer" if task.state == "offered" else "run")
                    if leases.is_out_of_attempts(task, self.policy):
                        self._ring_end(task.id)
                self.depth = await self._store.scripts.read(status.depth)
                self._wake(offered)
                self._wake_outbox()
            except ToolpostError as error:
                event(_log, logging.WARNING, "expired tasks not taken back", reason=error.message)
            limit_s = self.policy.sweep_s
            await anyio.sleep(limit_s if wait_s is None else min(limit_s, max(0.01, wait_s)))

    def _run(self, make: Callable[[], Script[Result]], *, durable: bool = True) -> Awaitable[Result]:
        return self._store.scripts.run(make, durable=durable, is_short=True)

    def _run_poll(self, make: Callable[[], Script[Result]]) -> Awaitable[Result]:
        """Run a step of a poll without waiting for the disk: a power cut that undoes an offer also ends its poll."""
        return self._run(make, durable=False)

    def _wake(self, offered: Iterable[Offer]) -> None:
        for task, poll in offered:
            # Through the store if the poll waits in another process, or was offered the task without being in `policy.polls`.
            if poll is not None and task.worker and not (task.is_fetched and self._waiting.hand_over(poll, task)):
                self._ring(task.worker)

    def _wake_outbox(self) -> None:
        if self._tracker is not None:
            self._store.wakeups.ring(OUTBOX)

    def _ring(self, name: str) -> None:
        self._store.wakeups.ring(_topic(name))

    def _ring_end(self, task: TaskId) -> None:
        self._store.wakeups.ring(_end_topic(task))


def _topic(name: str) -> str:
    return f"bus worker {name}"


def _end_topic(task: TaskId) -> str:
    return f"bus task over {task}"
