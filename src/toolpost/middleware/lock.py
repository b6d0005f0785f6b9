"""Tool-lock: calls that must not meet wait for each other, in a queue with an end."""

from collections.abc import Hashable

import msgspec

from toolpost.contracts.contract import Keyed
from toolpost.middleware.call import Call
from toolpost.middleware.interface import NextStep, Outcome
from toolpost.shares import Callers, FairQueue, Shares

_encode = msgspec.json.Encoder(order="sorted").encode


class Lock:
    """Holds what the contract asks for and no more: a `parallel` tool takes no lock."""

    def __init__(self, shares: Shares, callers: Callers, *, waiting_limit: int) -> None:
        """Take the shares of calls in flight, and how many calls may wait for one lock."""
        self._shares = shares
        self._callers = callers
        self._waiting_limit = waiting_limit
        self._queues: dict[Hashable, FairQueue] = {}

    def is_open_to(self, call: Call) -> bool:
        """Whether a call would pass without waiting."""
        return call.tool.contract.terms.concurrency == "parallel" and self._shares.is_open_to(call.caller.id)

    def enter(self, call: Call) -> None:
        """Count a call as in flight, once; raise `QueueOverloaded` if there are too many, of its caller or of all."""
        if not call.is_counted:
            self._shares.take(call.caller.id)
            call.is_counted = True

    def leave(self, call: Call) -> None:
        """Count a call as in flight no longer."""
        if call.is_counted:
            call.is_counted = False
            self._shares.give_back(call.caller.id)

    async def __call__(self, call: Call, proceed: NextStep) -> Outcome:
        """Let the call pass when it is its turn."""
        if not call.is_counted:  # as in `enter`, which would be a call more for every call
            self._shares.take(call.caller.id)
            call.is_counted = True
        try:
            concurrency = call.tool.contract.terms.concurrency
            if concurrency == "parallel":
                return await proceed(call)
            key = _key_of(call, concurrency.argument if isinstance(concurrency, Keyed) else None)
            if (queue := self._queues.get(key)) is None:
                queue = self._queues[key] = self._queue_of(call)
            try:
                await queue.enter(call.caller.id)
                try:
                    return await proceed(call)
                finally:
                    queue.leave(call.caller.id)
            finally:
                # Forgotten when nobody needs it, so that keys taken from arguments do not pile up.
                if queue.is_empty:
                    self._queues.pop(key, None)
        finally:
            self.leave(call)

    def _queue_of(self, call: Call) -> FairQueue:
        what = f"calls waiting for `{call.tool.contract.name}`"
        return FairQueue(what, self._callers, at_once=1, waiting=self._waiting_limit)


def _key_of(call: Call, argument: str | None) -> Hashable:
    name = call.tool.contract.name
    if argument is None:
        return name
    # The arguments have not been validated yet, so the value may be anything, or missing.
    return (name, _encode(call.arguments.get(argument)))
