"""A limit on waiting: a deadline and a way to be called off, at a fifth of the cost of a cancel scope."""

import asyncio
from types import TracebackType


class Limit:
    """Cancels the task within it, once: for calls that only wait for somebody else and never hold a cancellation up.

    A tool's own code may, and runs under anyio's scope, which cancels again and again.
    """

    __slots__ = ("_deadline", "_has_task", "_is_over", "_task", "_timer", "cancel_called")

    def __init__(self, deadline: float) -> None:
        self.cancel_called = False
        self._deadline = deadline
        self._has_task = True
        self._is_over = False
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        """Call off what is within, now or as soon as there is something."""
        if not self.cancel_called and not self._is_over:
            self.cancel_called = True
            if self._task is not None:
                self._task.cancel()

    def begin(self) -> None:
        """Let what is within run without a task of its own, up to its first wait."""
        self._has_task = False

    def go_on(self, task: "asyncio.Task[object] | None", loop: asyncio.AbstractEventLoop) -> None:
        """Limit this task from now on."""
        self._task = task
        self._timer = loop.call_at(self._deadline, self.cancel)
        if self.cancel_called and task is not None:
            task.cancel()

    def end(self) -> None:
        """Cancel nothing any more."""
        self._is_over = True

    def __enter__(self) -> None:
        if self._has_task:
            self.go_on(asyncio.current_task(), asyncio.get_running_loop())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
        # A task that somebody else has cancelled too is on its way out: that is not ours to stop.
        return self.cancel_called and task is not None and task.uncancel() <= 0 and kind is asyncio.CancelledError
