"""Steps of the chain that note when a call reaches them, in `Call.moments`, for parts that show how long each step takes.

A gateway without such a part does not use this module: its steps are the plain ones (`Pipeline` chooses), and cost nothing more.
What is done here is done for every call where there is one, and the console is on unless it is turned off: a moment is a look at
the clock and an item of a list, without a coroutine or an object of its own.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from time import monotonic_ns

from toolpost.contracts.errors import ErrorCode
from toolpost.middleware.audit import AuditEnter, AuditExit
from toolpost.middleware.call import Call
from toolpost.middleware.interface import CheckedResult, NextStep
from toolpost.middleware.lock import Lock
from toolpost.store import AuditEntry, AuditLog, Outcome


class Moment(IntEnum):
    """Moments in the life of a call, in their order. One that comes twice, as when a middleware retries, counts the last time.

    A call on the fast path has neither of the first two: it is sent only if it need not wait.
    """

    QUEUED = 0
    """It asks for the lock of its tool."""
    LOCKED = 1
    """It has the lock, and its arguments are validated next."""
    CHECKED = 2
    """Every check has passed: the tool is run next."""
    ANSWERED = 3
    """The result or the error is there: the audit entry is written next."""
    RECORDED = 4
    """The audit entry is committed."""


# Members of an enumeration take longer to look up than all that is done with them here.
_QUEUED, _LOCKED, _CHECKED, _ANSWERED, _RECORDED = (moment.value for moment in Moment)


class TimedLock(Lock):
    """Notes when calls begin to wait for their lock; `note_locked` notes when they have it."""

    def __call__(self, call: Call, proceed: NextStep) -> Awaitable[CheckedResult]:  # type: ignore[override] # one coroutine less
        if (moments := call.moments) is None:
            call.moments = [monotonic_ns(), 0, 0, 0, 0]
        elif moments[_QUEUED]:
            moments[_QUEUED] = monotonic_ns()
        # Else the fast path has left the call to a task: its server has had the request since then.
        return super().__call__(call, proceed)


def note_locked(call: Call) -> None:
    """Note, as the first of the checks, that a call has its lock."""
    if (moments := call.moments) is not None and moments[_QUEUED]:
        moments[_LOCKED] = monotonic_ns()


class TimedAuditEnter(AuditEnter):
    """Notes when calls have passed every check."""

    def __call__(self, call: Call) -> None:
        if (moments := call.moments) is None:
            call.moments = [0, 0, monotonic_ns(), 0, 0]
        elif moments[_QUEUED]:
            moments[_CHECKED] = monotonic_ns()
        super().__call__(call)

    def undo(self, call: Call) -> None:
        call.moments = None
        super().undo(call)


class TimedAuditExit(AuditExit):
    """Notes when the audit entry begins to be written, and when it is."""

    def __init__(self, log: AuditLog, on_recorded: Sequence[Callable[[Call], None]]) -> None:
        """`on_recorded` are told of each call whose entry is written, on the event loop: they are quick, and do not raise."""
        super().__init__(log)
        self._on_recorded = tuple(on_recorded)

    def make_entry(
        self, call: Call, outcome: Outcome, code: ErrorCode | None, result: CheckedResult | None
    ) -> AuditEntry:
        if (moments := call.moments) is None:
            moments = call.moments = [0] * len(Moment)
        moments[_ANSWERED] = monotonic_ns()
        return super().make_entry(call, outcome, code, result)

    def release(self, call: Call) -> None:
        if (moments := call.moments) is not None:
            moments[_RECORDED] = monotonic_ns()
        super().release(call)
        for tell in self._on_recorded:
            tell(call)
