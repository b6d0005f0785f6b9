"""Polls that wait in this process: a task that is offered to one is passed to it in memory, without another read of the store."""

from collections.abc import Iterable

from toolpost.parts.bus.tasks import PollId, PollingWorker, WorkerName, WorkerTask
from toolpost.store import Listener, Wake


class Waiter:
    """A poll that waits, with its listener."""

    __slots__ = ("listener", "name", "poll", "resets", "task")

    def __init__(self, name: WorkerName, poll: PollId, listener: Listener) -> None:
        self.name = name
        self.poll = poll
        self.listener = listener
        self.resets = 0
        """How often its worker had been reset when the poll started."""
        self.task: WorkerTask | None = None
        """The task that was handed to it, None until then."""


class WaitingPolls:
    """Waiting polls by id. Two may wait for one worker, until the older one reads that it is superseded."""

    def __init__(self) -> None:
        self._waiters: dict[PollId, Waiter] = {}

    def __bool__(self) -> bool:
        return bool(self._waiters)

    def __contains__(self, poll: object) -> bool:
        return poll in self._waiters

    def join(self, waiter: Waiter) -> None:
        self._waiters[waiter.poll] = waiter

    def leave(self, waiter: Waiter) -> None:
        del self._waiters[waiter.poll]

    def hand_over(self, poll: PollId, task: WorkerTask) -> bool:
        """Give a task to a poll, and wake it; return False if the poll does not wait here."""
        waiter = self._waiters.get(poll)
        if waiter is None:
            return False
        waiter.task = task
        waiter.listener.wake(Wake.RUNG)
        return True

    def compare(self, workers: Iterable[PollingWorker]) -> None:
        """Wake the polls whose worker was deleted, reset, or got a task or another poll: they missed a wake-up."""
        by_name = {worker.name: worker for worker in workers}
        for waiter in self._waiters.values():
            worker = by_name.get(waiter.name)
            if (
                worker is None
                or worker.task is not None
                or (worker.poll, worker.resets) != (waiter.poll, waiter.resets)
            ):
                waiter.listener.wake(Wake.MAYBE_MISSED)
