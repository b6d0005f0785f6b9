"""A limit on waiting: a deadline and a way to be called off, at a fifth of the cost of a cancel scope."""

import asyncio
from types import TracebackType


class Limit:
    """Cancels the task within it, once: for calls that only wait for somebody else and never hold a cancellation up.

    A tool's own code may, and runs under anyio's scope, which cancels again and again.
    """

    __slots__ = ("_deadline", "_task", "_timer", "cancel_called")

    def __init__(self, deadline: float) -> None:
        self.cancel_called = False
        self._deadline = deadline
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        """Call off what is within."""
        if not self.cancel_called:
            self.cancel_called = True
            if self._task is not None:
                self._task.cancel()

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_at(self._deadline, self.cancel)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
        # A task that somebody else has cancelled too is on its way out: that is not ours to stop.
        return self.cancel_called and task is not None and task.uncancel() <= 0 and kind is asyncio.CancelledError
