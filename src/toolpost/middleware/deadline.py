"""One scope for every way a call may be stopped: its deadline, its caller, the server's end.

A call that only waits for a server has a `Limit`, at a fifth of the cost of anyio's cancel scope, which any other call has.
"""

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolpost.middleware.call import Call
    from toolpost.middleware.interface import NextStep, Outcome


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


async def within_limits(call: "Call", proceed: "NextStep") -> "Outcome":
    """Run the rest under the call's scope, and say why if it was stopped."""
    call.raise_if_ended()
    was_asked = False
    with call.scope:
        try:
            outcome = await proceed(call)
        except asyncio.CancelledError:
            # A person who takes their time is not the server's fault.
            was_asked = call.waits_for_client
            raise
        if not call.scope.cancel_called:
            return outcome
        # The tool swallowed the cancellation and answered all the same: too late, it has been called off.
    # Nor is it the server's fault if a middleware hangs.
    if not call.is_cancelled and not was_asked and call.held_by is None:
        call.blame(f"`{call.tool.contract.terms.name}` did not answer within {call.tool.contract.timeout_s:g} s")
    call.raise_if_ended()
    raise AssertionError("a scope ended without a reason")
