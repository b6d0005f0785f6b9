"""What every call passes: users' middleware → tool-lock → schema-validate → audit-enter → dispatch → audit-exit."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from toolpost.authoring.middleware import NamedMiddleware
from toolpost.middleware.audit import AuditExit, audit_enter
from toolpost.middleware.call import Call
from toolpost.middleware.deadline import within_limits
from toolpost.middleware.dispatch import dispatch
from toolpost.middleware.fast_path import Ahead, Delivery
from toolpost.middleware.interface import Gate, NextStep, Outcome, Step
from toolpost.middleware.lock import Lock
from toolpost.middleware.progress import ProgressNote, ProgressShaper
from toolpost.middleware.user import UserMiddleware
from toolpost.middleware.validate import Validation
from toolpost.shares import Callers, Shares
from toolpost.store import AuditLog
from toolpost.upstreams.validation.pool import Validators

__all__ = ["Call", "Delivery", "Outcome", "Pipeline", "ProgressNote", "ProgressShaper"]


class Pipeline:
    """The way of every call."""

    def __init__(
        self,
        audit_log: AuditLog,
        shares: Shares,
        callers: Callers,
        *,
        waiting_limit: int,
        validators: Validators,
        middleware: Sequence[NamedMiddleware] = (),
    ) -> None:
        """Build what every call passes; this list is the order, and the only one."""
        validation = Validation(validators)
        audit = AuditExit(audit_log)
        lock = Lock(shares, callers, waiting_limit=waiting_limit)
        self._chain = _compose(
            [
                audit,  # acts last, and outside the limits: a refused or cancelled call is recorded too
                within_limits,
                *([UserMiddleware(middleware, validation)] if middleware else ()),
                lock,  # behind the middleware: a lock's key may be one of the arguments
            ],
            [validation.validate_arguments, audit_enter],
            partial(dispatch, validation=validation),
        )
        self.has_middleware = bool(middleware)
        self._ahead = Ahead(audit, lock)
        self.ask: Callable[[Call], bool] = _never if middleware else self._ahead.ask
        """Asks the server of a call, if that can be done at once: then `begin` must follow."""

    def __call__(self, call: Call) -> Awaitable[Outcome]:
        """Let a call pass."""
        return self._chain(call)

    def begin(self, call: Call, delivery: Delivery, on_answer: Callable[[Call, Outcome], None]) -> None:
        """Have a call answered whose server was asked: without a task, which `on_answer` then hears of, or by one."""
        self._ahead.begin(call, delivery, on_answer)


def _never(_call: Call) -> bool:
    # Middleware awaits, and may change the arguments: nothing is asked before it has run.
    return False


def _compose(steps: Sequence[Step], gates: Sequence[Gate], last: NextStep) -> NextStep:
    """Chain steps, outermost first, and the gates behind them."""

    def pass_gates(call: Call) -> Awaitable[Outcome]:
        for number, gate in enumerate(gates, 1):
            if (waiting := gate(call)) is not None:
                return _pass_later(call, waiting, _compose((), gates[number:], last))
        return last(call)

    chain: NextStep = pass_gates
    for step in reversed(steps):
        chain = partial(step, proceed=chain)  # type: ignore[call-arg]
    return chain


async def _pass_later(call: Call, waiting: Awaitable[None], proceed: NextStep) -> Outcome:
    await waiting
    return await proceed(call)
