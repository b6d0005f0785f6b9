"""Polls that wait in this process: a task that is offered to one is handed to it without reading the store again."""

from collections.abc import Iterable

from toolpost.parts.bus.tasks import Offered, PollId, PollingWorker, WorkerName
from toolpost.store.wakeups import Listener, Wake


class Waiter:
    """One poll."""

    __slots__ = ("listener", "name", "poll", "resets", "task")

    def __init__(self, name: WorkerName, poll: PollId, listener: Listener) -> None:
        self.name = name
        self.poll = poll
        self.listener = listener
        self.resets = 0
        """How often its worker had been reset when the poll started."""
        self.task: Offered | None = None
        """The task that was handed to it, None until then."""


class WaitingPolls:
    """Waiting polls by id. Two may wait for one worker, until the older one has learned that it is superseded."""

    def __init__(self) -> None:
        self._waiters: dict[PollId, Waiter] = {}

    def __bool__(self) -> bool:
        return bool(self._waiters)

    def __contains__(self, poll: object) -> bool:
        return poll in self._waiters

    def join(self, waiter: Waiter) -> None:
        """Register a poll that waits for a task."""
        self._waiters[waiter.poll] = waiter

    def leave(self, waiter: Waiter) -> None:
        """Remove a poll."""
        del self._waiters[waiter.poll]

    def hand_over(self, poll: PollId, task: Offered) -> bool:
        """Give a task to a poll, and wake it; return False if the poll does not wait here."""
        waiter = self._waiters.get(poll)
        if waiter is None:
            return False
        waiter.task = task
        waiter.listener.wake(Wake.RUNG)
        return True

    def compare(self, workers: Iterable[PollingWorker]) -> None:
        """Wake polls whose worker has changed since they started, so that they read what it has."""
        known = {worker.name: worker for worker in workers}
        for waiter in self._waiters.values():
            worker = known.get(waiter.name)
            if (
                worker is None
                or worker.task is not None
                or (worker.poll, worker.resets) != (waiter.poll, waiter.resets)
            ):
                waiter.listener.wake(Wake.PERHAPS)
