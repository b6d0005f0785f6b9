"""Tool-lock: calls of one tool that must not overlap wait for each other, in a bounded queue."""

import time
from collections.abc import Hashable

import msgspec

from toolpost.contracts.contract import Keyed
from toolpost.fairness import Callers, FairQueue, Shares
from toolpost.middleware.call import Call
from toolpost.middleware.interface import CheckedResult, NextStep

_encode = msgspec.json.Encoder(order="sorted").encode


class ToolLock:
    """Takes the lock that the contract's `concurrency` asks for; a `parallel` tool takes none. Counts calls in flight as
    well.
    """

    def __init__(self, shares: Shares, callers: Callers, *, waiting_limit: int) -> None:
        """`shares` counts calls in flight; `waiting_limit` is how many calls may wait for one lock."""
        self._shares = shares
        self._callers = callers
        self._waiting_limit = waiting_limit
        self._queues: dict[Hashable, FairQueue] = {}

    @property
    def waiting(self) -> int:
        """How many calls wait for a lock."""
        return sum(queue.waiting for queue in self._queues.values())

    def is_open_to(self, call: Call) -> bool:
        """Whether a call would pass without waiting."""
        return call.tool.contract.terms.concurrency == "parallel" and self._shares.is_open_to(call.caller.id)

    def enter(self, call: Call) -> None:
        """Count a call as in flight, once; raise `QueueOverloaded` if its caller, or all together, have too many."""
        if not call.is_counted:
            self._shares.take(call.caller.id)
            call.is_counted = True

    def leave(self, call: Call) -> None:
        """Undo `enter`; does nothing for a call that is not counted."""
        if call.is_counted:
            call.is_counted = False
            self._shares.give_back(call.caller.id)

    async def __call__(self, call: Call, proceed: NextStep) -> CheckedResult:
        if not call.is_counted:  # `enter`, inlined: every call passes here
            self._shares.take(call.caller.id)
            call.is_counted = True
        try:
            concurrency = call.tool.contract.terms.concurrency
            if concurrency == "parallel":
                if not call.took_fast_path:
                    call.locked_ns = time.monotonic_ns()
                return await proceed(call)
            key = _key_of(call, concurrency.argument if isinstance(concurrency, Keyed) else None)
            if (queue := self._queues.get(key)) is None:
                what = f"calls waiting for `{call.tool.contract.name}`"
                queue = FairQueue(what, self._callers, at_once=1, waiting=self._waiting_limit)
                self._queues[key] = queue
            try:
                call.queued_ns = time.monotonic_ns()
                await queue.enter(call.caller.id)
                call.locked_ns = time.monotonic_ns()
                try:
                    return await proceed(call)
                finally:
                    queue.leave(call.caller.id)
            finally:
                # Keys may come from arguments: a queue that is not dropped when it is empty would be a memory leak.
                if queue.is_empty:
                    self._queues.pop(key, None)
        finally:
            self.leave(call)


def _key_of(call: Call, argument: str | None) -> Hashable:
    # Callers with credentials of their own work on different accounts, and need not wait for each other.
    name = (call.tool.contract.name, call.tool.owner)
    if argument is None:
        return name
    # The arguments have not been validated yet: the value may be of any type, or missing.
    return (*name, _encode(call.arguments.get(argument)))
