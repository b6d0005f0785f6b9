"""Tool-lock: calls that must not meet wait for each other, in a queue with an end."""

import asyncio
from collections import deque
from collections.abc import Hashable

import msgspec

from toolpost.contracts.contract import Keyed
from toolpost.contracts.errors import QueueOverloaded
from toolpost.pipeline.call import Call
from toolpost.pipeline.stage import Next, Outcome

_encode = msgspec.json.Encoder(order="sorted").encode


class Lock:
    """Holds what the contract asks for and no more: a `parallel` tool takes no lock."""

    def __init__(self, *, waiting_limit: int, running_limit: int) -> None:
        self._waiting_limit = waiting_limit
        self._running_limit = running_limit
        self.running: set[Call] = set()
        """The calls that have passed."""
        self._queues: dict[Hashable, deque[asyncio.Future[None]]] = {}

    def is_open_to(self, call: Call) -> bool:
        """Whether a call would pass without waiting."""
        return len(self.running) < self._running_limit and call.tool.contract.terms.concurrency == "parallel"

    async def __call__(self, call: Call, proceed: Next) -> Outcome:
        """Let the call pass when it is its turn."""
        if len(self.running) >= self._running_limit and call not in self.running:
            raise QueueOverloaded(
                "Too many calls are in flight.", hint="try again in a moment", limit=self._running_limit
            )
        self.running.add(call)
        try:
            concurrency = call.tool.contract.terms.concurrency
            if concurrency == "parallel":
                return await proceed(call)
            key = _key_of(call, concurrency.argument if isinstance(concurrency, Keyed) else None)
            await self._acquire(key, call)
            try:
                return await proceed(call)
            finally:
                self._release(key)
        finally:
            self.running.discard(call)

    async def _acquire(self, key: Hashable, call: Call) -> None:
        queue = self._queues.get(key)
        if queue is None:
            self._queues[key] = deque()
            return
        if len(queue) >= self._waiting_limit:
            raise QueueOverloaded(
                f"Too many calls wait for `{call.tool.contract.name}`.",
                hint="try again in a moment",
                limit=self._waiting_limit,
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The lock was handed to us in the same moment: it goes on to whoever waits next.
                self._release(key)
            elif turn in queue:
                queue.remove(turn)
            raise

    def _release(self, key: Hashable) -> None:
        queue = self._queues[key]
        while queue:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        # Nobody waits: the key is forgotten, so that keys taken from arguments do not pile up.
        del self._queues[key]


def _key_of(call: Call, argument: str | None) -> Hashable:
    name = call.tool.contract.name
    if argument is None:
        return name
    # The arguments have not been validated yet, so the value may be anything, or missing.
    return (name, _encode(call.arguments.get(argument)))
