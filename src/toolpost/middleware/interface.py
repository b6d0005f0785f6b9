"""The types that the chain is made of: a step takes a call and the rest of the chain, a check only the call."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from toolpost.authoring.middleware import Middleware, ToolInfo
from toolpost.base.ids import JsonObject
from toolpost.middleware.call import Call


class CheckedResult(msgspec.Struct, frozen=True):
    """A tool's result, validated and encoded once."""

    encoded: bytes
    content: Sequence[JsonObject] = ()
    upstream_fields: Mapping[str, msgspec.Raw] | None = None
    """The fields of a result that a server, or a function, made itself: sent unchanged. None for a function's data."""
    is_error: bool = False
    """Whether `upstream_fields` say `isError`."""
    facts: JsonObject | None = None
    """Sent beside the result, under our key in `_meta`."""


NextStep = Callable[[Call], Awaitable[CheckedResult]]
Step = Callable[[Call, NextStep], Awaitable[CheckedResult]]
Check = Callable[[Call], Awaitable[None] | None]
"""Raises to refuse a call. Returns an awaitable only if the check cannot be made at once, which is rare."""


class ResultLimiter(Protocol):
    """Keeps large results out of answers. It acts on the answer, behind the audit, whose entry has the digest of the result as
    the tool gave it.
    """

    small_bytes: int
    """Results of up to this size are sent as they are to all callers; it is not asked about them."""

    async def limit(self, call: Call, result: CheckedResult) -> CheckedResult:
        """Return the result itself, or a smaller one that says where the rest is; must not raise."""
        ...


class Guard(Protocol):
    """Decides whether calls may run: a policy of a part, which no other middleware can get around.

    It runs in two places. `admit` is a step inside all middleware and outside the lock, on arguments that are valid: there it may
    wait for long without holding anything. `check` runs when the lock is held and the arguments were validated again, right
    before the tool: nothing but the tool itself comes after it, so what it grants once is used at most once.

    A tool that is refused anyway, by the caller's mode or in quarantine, reaches neither: no person is asked, and no grant used.

    One with an attribute `applies_to_call`, a function from a call to bool, leaves the fast path to the calls for which that
    returns False. Of the others, and of those that do not take the fast path, it sees all.

    A method of an extension has no contract and no `Call`: it is refused if a guard may apply to it (`extensions.py`). A guard
    that refuses nothing has an attribute `ignores_extensions = True`.

    A class must define all four members: a gateway does not start with a guard that lacks one (`host/contributions.py`).
    """

    name: str
    """What logs and errors call it."""

    def may_apply(self, tool: ToolInfo) -> bool:
        """Whether calls of this tool have to pass; evaluated once for each tool, and again when the catalog changes."""
        ...

    async def admit(self, call: Call, proceed: NextStep) -> CheckedResult:
        """Let the call go on, or raise."""
        ...

    def check(self, call: Call) -> Awaitable[None] | None:
        """Raise unless the call may run now, with the arguments that it has now."""
        ...


@dataclass(frozen=True)
class CallMiddleware:
    """A part's middleware: runs around every call, inside configured middleware and around the middleware of plugins.

    A part that cannot open brings none: what must never be left out belongs into `middleware.load`. A function with an attribute
    `may_apply` is left out of the calls of tools for which that returns False, one with `applies_to_call` of the calls for which
    that does.
    """

    function: Middleware


@dataclass(frozen=True)
class RecordListener:
    """Called with each call when its audit entry is written, whatever its outcome.

    `call.queued_ns`, `locked_ns`, `checked_ns`, `answered_ns` and `recorded_ns` say when it reached each step. On the event loop,
    in the middle of a call: it must be quick, and must not raise.
    """

    function: Callable[[Call], None]
