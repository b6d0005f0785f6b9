"""The steps that every call passes, in this order: users' middleware → tool-lock → schema-validate → audit-enter → dispatch →
audit-exit.

A *step* wraps the rest of the chain, as middleware does in ASGI. A *check* only looks at the call: it raises, returns None,
or returns an awaitable in the rare case that it has to wait. Checks cost no coroutine of their own, which is why validation
and audit-enter are not steps. What each step does is in its own module; the gateway makes the answer.
"""

from collections.abc import Awaitable, Sequence
from functools import partial

from toolpost.authoring.middleware import NamedMiddleware
from toolpost.middleware.audit import AuditExit, audit_enter
from toolpost.middleware.call import Call
from toolpost.middleware.deadline import apply_deadline
from toolpost.middleware.dispatch import dispatch
from toolpost.middleware.fast_path import Delivery, FastPath
from toolpost.middleware.interface import Check, NextStep, Outcome, Step
from toolpost.middleware.lock import Lock
from toolpost.middleware.progress import ProgressNotification, ProgressShaper
from toolpost.middleware.user import UserMiddleware
from toolpost.middleware.validate import Validation
from toolpost.shares import Callers, Shares
from toolpost.store import AuditLog
from toolpost.upstreams.validation.pool import Validators

__all__ = ["Call", "Delivery", "Outcome", "Pipeline", "ProgressNotification", "ProgressShaper"]


class Pipeline:
    """The chain of steps, and the fast path that skips it for plain calls to servers."""

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
        """Build the chain; this list is the only place that decides the order."""
        validation = Validation(validators)
        audit = AuditExit(audit_log)
        lock = Lock(shares, callers, waiting_limit=waiting_limit)
        self._chain = _compose(
            [
                audit,  # acts last, and outside the deadline: a refused or cancelled call is recorded too
                apply_deadline,
                *([UserMiddleware(middleware, validation)] if middleware else ()),
                lock,  # behind the middleware: a lock's key may be one of the arguments
            ],
            [validation.validate_arguments, audit_enter],
            partial(dispatch, validation=validation),
        )
        self.has_middleware = bool(middleware)
        self._fast_path = FastPath(audit, lock)

    def __call__(self, call: Call) -> Awaitable[Outcome]:
        return self._chain(call)

    def try_fast_path(self, call: Call, delivery: Delivery) -> bool:
        """Answer a plain call to a server without a task, through `delivery`; False if it needs one."""
        # Middleware awaits, and may change the arguments: nothing is sent before it has run.
        return not self.has_middleware and self._fast_path.start(call, delivery)


def _compose(steps: Sequence[Step], checks: Sequence[Check], last: NextStep) -> NextStep:
    """Chain steps, outermost first, with the checks and `last` behind them."""

    def run_checks(call: Call) -> Awaitable[Outcome]:
        for number, check in enumerate(checks, 1):
            if (pending := check(call)) is not None:
                return _run_rest_later(call, pending, _compose((), checks[number:], last))
        return last(call)

    chain: NextStep = run_checks
    for step in reversed(steps):
        chain = partial(step, proceed=chain)  # type: ignore[call-arg]
    return chain


async def _run_rest_later(call: Call, pending: Awaitable[None], proceed: NextStep) -> Outcome:
    await pending
    return await proceed(call)
