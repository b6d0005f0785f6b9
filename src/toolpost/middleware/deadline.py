"""One scope for every way in which a call is stopped: its deadline, its caller, the server's shutdown.

A call that only waits for an upstream server has a `LightCancelScope`, which costs a fifth of anyio's cancel scope. Every other
call has anyio's. All calls share one timer: setting and clearing a timer for each costs more than the scope itself.

    call a, until 30.0: the timer is set to 30.0    call b, until 30.4: nothing    30.0: a is stopped, the timer is set to 30.4
"""

import asyncio
import math
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolpost.middleware.call import Call
    from toolpost.middleware.interface import CheckedResult, NextStep


class LightCancelScope:
    """Cancels the task that entered it, once. Has the part of `anyio.CancelScope`'s interface that calls need.

    Cancelling once is enough for code that only waits on a future. A tool's own code may swallow a cancellation, so it runs
    under anyio's scope, which cancels repeatedly.
    """

    __slots__ = ("_task", "cancel_called")

    def __init__(self) -> None:
        self.cancel_called = False
        self._task: asyncio.Task[object] | None = None

    def cancel(self, reason: str | None = None) -> None:
        """Cancel the task inside; one that enters later is not cancelled by this, and must look at `cancel_called`."""
        if not self.cancel_called:
            self.cancel_called = True
            if self._task is not None:
                # As anyio writes it, for what tells a server of the cancellation (`upstreams.message.cancellation_reason`).
                self._task.cancel(f"; reason: {reason}" if reason else None)

    def __enter__(self) -> None:
        self._task = asyncio.current_task()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        task, self._task = self._task, None
        # A task that was cancelled from outside as well must end: only our own cancellation may be swallowed.
        return self.cancel_called and task is not None and task.uncancel() <= 0 and kind is asyncio.CancelledError


class Deadline:
    """Runs the rest of the chain under the call's scope, which is cancelled when `ends_at` has passed."""

    def __init__(self) -> None:
        self._calls: dict[Call, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        """Not later than the deadline of any call that has no timer of its own."""

    async def __call__(self, call: "Call", proceed: "NextStep") -> "CheckedResult":
        """Raise `ToolTimedOut` or `CallCancelled` if the call was stopped."""
        call.raise_if_ended()
        waited_for_client = False
        self._calls[call] = None
        if call.ends_at < self._timer_at:
            self._set_timer(call.ends_at)
        try:
            with call.scope:
                try:
                    result = await proceed(call)
                except asyncio.CancelledError:
                    # A person who is slow to answer an elicitation does not count against the server.
                    waited_for_client = call.waits_for_client
                    raise
                if not call.scope.cancel_called:
                    return result
                # The tool swallowed the cancellation and returned a result: it is too late, the call counts as stopped.
        finally:
            del self._calls[call]
        # A middleware that hangs does not count against the server either.
        if not call.is_cancelled and not waited_for_client and call.running_middleware is None:
            call.report_failure(
                f"`{call.tool.contract.terms.name}` did not answer within {call.tool.contract.timeout_s:g} s"
            )
        call.raise_if_ended()
        raise AssertionError("a scope ended without a reason")

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at, self._stop_overdue)
        self._timer_at = at

    def _stop_overdue(self) -> None:
        """Stop the calls whose deadline has passed, and set the timer for the next of the others."""
        self._timer, self._timer_at = None, math.inf
        now, next_at = time.monotonic(), math.inf
        for call in tuple(self._calls):
            if call.has_own_timer:
                continue
            if call.ends_at <= now:
                call.scope.cancel("deadline exceeded")
            elif call.ends_at < next_at:
                next_at = call.ends_at
        if next_at < math.inf:
            self._set_timer(next_at)
