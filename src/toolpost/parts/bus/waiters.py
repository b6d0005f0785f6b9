"""The polls that wait in this process: what is offered to one of them is handed to it, without another look at the store."""

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
        """How often its worker had been reset when it began."""
        self.task: Offered | None = None
        """What was handed to it."""


class WaitingPolls:
    """All of them. Two may wait for one worker, until the older one has heard that it is superseded."""

    def __init__(self) -> None:
        self._waiters: dict[PollId, Waiter] = {}

    def __bool__(self) -> bool:
        return bool(self._waiters)

    def __contains__(self, poll: object) -> bool:
        return poll in self._waiters

    def join(self, waiter: Waiter) -> None:
        """Be among them."""
        self._waiters[waiter.poll] = waiter

    def leave(self, waiter: Waiter) -> None:
        """Be no longer among them."""
        del self._waiters[waiter.poll]

    def hand_over(self, poll: PollId, task: Offered) -> bool:
        """Give a task to the poll that waits for it; False if it does not any more."""
        waiter = self._waiters.get(poll)
        if waiter is None:
            return False
        waiter.task = task
        waiter.listener.wake(Wake.RUNG)
        return True

    def compare(self, workers: Iterable[PollingWorker]) -> None:
        """Wake those whose worker is not as they left it."""
        known = {worker.name: worker for worker in workers}
        for waiter in self._waiters.values():
            worker = known.get(waiter.name)
            if (
                worker is None
                or worker.task is not None
                or (worker.poll, worker.resets) != (waiter.poll, waiter.resets)
            ):
                waiter.listener.wake(Wake.PERHAPS)
