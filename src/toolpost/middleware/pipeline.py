"""The chain of steps of each tool, and the plans that keep it."""

import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from toolpost.authoring.middleware import NamedMiddleware, may_apply
from toolpost.base import event
from toolpost.contracts.contract import Contract
from toolpost.fairness import Callers, Shares
from toolpost.middleware.audit import AuditEnter, AuditExit
from toolpost.middleware.call import Call
from toolpost.middleware.deadline import Deadline
from toolpost.middleware.dispatch import dispatch
from toolpost.middleware.fast_path import Delivery, FastPath
from toolpost.middleware.interface import (
    Check,
    CheckedResult,
    Guard,
    NextStep,
    Step,
)
from toolpost.middleware.tool_lock import ToolLock
from toolpost.middleware.user import UserMiddleware, applies_to
from toolpost.middleware.validate import Validation
from toolpost.providers import ProvidedTool
from toolpost.store.audit import AuditLog
from toolpost.upstreams.validation.pool import Validators

_log = logging.getLogger("toolpost.middleware")

_PLANS_LIMIT: Final = 50_000
"""How many tools' plans are kept; servers may list their tools again and again."""


class _CallPlan(NamedTuple):
    """What calls of one tool pass."""

    contract: Contract
    chain: NextStep
    middleware: tuple[NamedMiddleware, ...]
    guards: tuple[Guard, ...]
    has_user_steps: bool
    """Whether middleware or a guard may apply; every call looks, so it is not computed."""


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
        guards: Sequence[Guard] = (),
        on_recorded: Sequence[Callable[[Call], None]] = (),
        small_bytes: int = sys.maxsize,
    ) -> None:
        """`on_recorded` are told of each call whose audit entry is written, on the event loop: they are quick, and do not raise.

        Results above `small_bytes` do not take the fast path.
        """
        self._validation = Validation(validators)
        self._audit_enter = AuditEnter(audit_log)
        self._audit = AuditExit(audit_log, on_recorded)
        self._deadline = Deadline()
        self._lock = ToolLock(shares, callers, waiting_limit=waiting_limit)
        self._middleware = tuple(middleware)
        self._guards = tuple(guards)
        self._fast_path = FastPath(self._audit_enter, self._audit, self._lock, small_bytes=small_bytes)
        self._plain_chain = self._chain_of((), ())
        self._chains: dict[tuple[object, ...], NextStep] = {}
        self._plans: dict[int, _CallPlan] = {}
        """By the id of the contract, which the plan keeps alive: hashing one would cost more than the look-up saves. Not by
        the tool: the fast path makes a copy for each call that it leaves to a task.
        """
        self._has_only_builtin_steps = not middleware and not guards

    def __call__(self, call: Call) -> Awaitable[CheckedResult]:
        if self._has_only_builtin_steps or call.tool.is_refused:
            return self._plain_chain(call)
        return self._plan_of(call.tool).chain(call)

    def try_fast_path(self, call: Call, delivery: Delivery) -> bool:
        """Answer a plain call to a server without a task, through `delivery`; False if it needs one."""
        # Middleware awaits, and may change the arguments: nothing that it applies to is sent before it has run.
        if not self._has_only_builtin_steps:
            plan = self._plan_of(call.tool)
            if plan.has_user_steps and (
                any(_guards_call(guard, call) for guard in plan.guards)
                or any(applies_to(middleware, call) for middleware in plan.middleware)
            ):
                return False
        return self._fast_path.start(call, delivery)

    def has_user_steps_for(self, tool: ProvidedTool) -> bool:
        """Whether middleware or a guard runs in the tasks of this tool's calls."""
        return not self._has_only_builtin_steps and not tool.is_refused and self._plan_of(tool).has_user_steps

    @property
    def waiting(self) -> int:
        """How many calls wait for the lock of their tool."""
        return self._lock.waiting

    def forget_plans(self) -> None:
        """Ask middleware and guards again which tools they apply to: the catalog, or the tags of a server, changed."""
        self._plans.clear()

    def _plan_of(self, tool: ProvidedTool) -> _CallPlan:
        plan = self._plans.get(id(tool.contract))
        return plan if plan is not None else self._make_plan(tool)

    def _make_plan(self, tool: ProvidedTool) -> _CallPlan:
        info = tool.info
        middleware = tuple(one for one in self._middleware if one.may_apply(info))
        guards = tuple(one for one in self._guards if may_apply(one.may_apply, info, name=one.name))
        chain = self._plain_chain
        if middleware or guards:
            key = (*map(id, middleware), None, *map(id, guards))
            if key not in self._chains:
                self._chains[key] = self._chain_of(middleware, guards)
            chain = self._chains[key]
        if len(self._plans) >= _PLANS_LIMIT:
            self._plans.clear()
        has_steps = bool(middleware or guards)
        plan = self._plans[id(tool.contract)] = _CallPlan(tool.contract, chain, middleware, guards, has_steps)
        return plan

    def _chain_of(self, middleware: Sequence[NamedMiddleware], guards: Sequence[Guard]) -> NextStep:
        """Build a chain; this list is the only place that decides the order."""
        validation = self._validation
        return _compose(
            [
                self._audit,  # acts last, and outside the deadline: a refused or cancelled call is recorded too
                self._deadline,
                *([UserMiddleware(middleware, validation)] if middleware else ()),
                # A guard may ask people: arguments that are not valid must not get that far.
                *([partial(_validate_first, validation=validation)] if guards else ()),
                *(guard.admit for guard in guards),
                self._lock,  # behind the middleware: a lock's key may be one of the arguments
            ],
            [validation.validate_arguments, *(guard.check for guard in guards), self._audit_enter],
            partial(dispatch, validation=validation),
        )


def _guards_call(guard: Guard, call: Call) -> bool:
    applies: Callable[[Call], bool] | None = getattr(guard, "applies_to_call", None)
    try:
        return applies is None or applies(call)
    except Exception as error:  # noqa: BLE001 (a policy must not be lost to a bug in its filter)
        event(_log, logging.ERROR, "applies_to_call failed", guard=guard.name, call=call.id, exception=error)
        return True


async def _validate_first(call: Call, proceed: NextStep, *, validation: Validation) -> CheckedResult:
    if (pending := validation.validate_arguments(call)) is not None:
        await pending
    return await proceed(call)


def _compose(steps: Sequence[Step], checks: Sequence[Check], last: NextStep) -> NextStep:
    """Chain steps, outermost first, with the checks and `last` behind them."""

    def run_checks(call: Call) -> Awaitable[CheckedResult]:
        for check in checks:
            if (pending := check(call)) is not None:
                left = checks[checks.index(check) + 1 :]
                return _run_rest_later(call, pending, _compose((), left, last))
        return last(call)

    chain: NextStep = run_checks
    for step in reversed(steps):
        chain = partial(step, proceed=chain)  # type: ignore[call-arg]
    return chain


async def _run_rest_later(call: Call, pending: Awaitable[None], proceed: NextStep) -> CheckedResult:
    await pending
    return await proceed(call)
