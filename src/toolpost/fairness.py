"""Fair shares: how much of a limited resource one caller may have, and who is next where calls wait.

Everything that is limited is limited twice: in total, and for one caller where there are several. `Callers` says whether there
are; `Shares` counts what each of them has and refuses at once; a `FairQueue` lets calls wait and admits callers in turn.

Example: `limits.calls` is 1,024 and two callers are configured. One of them gets 512 calls in flight, the next is refused with
QUEUE_OVERLOADED, and the other one is not affected. The agent of a conversation counts as the caller who started it, because
its delegated token carries that caller's id.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.contracts.errors import QueueOverloaded

__all__ = ["Callers", "Shares", "over_limit"]

HALF: Final = 0.5

RETRY_S: Final = 1.0
"""Suggested delay before a retry, where a call's end frees a place."""

_OPERATORS: Final = frozenset({"stdio", "memory", "cli"})
"""Transports that only the person who started the process can use."""


class Callers:
    """Whether several callers share the gateway, and which of them may see all calls. The roster keeps it current."""

    def __init__(self, part: float = HALF) -> None:
        self.part = part
        """The part of every limit that one of several callers may have."""
        self.are_several = False
        self.admins: frozenset[str] | None = None
        """Names of callers with `admin = true`; None where clients need no token."""

    def share_of(self, total: int) -> int:
        """Return the part of `total` for one caller: all of it where there is only one."""
        return self.part_of(total) if self.are_several else total

    def part_of(self, total: int) -> int:
        """Return the part of `total` for one of several callers, at least 1."""
        return max(1, int(total * self.part))

    def may_see_all(self, caller: Caller) -> bool:
        """Whether a caller may see the calls of all others. An agent never may, not even an admin's."""
        if caller.is_agent:
            return False
        if self.admins is None or caller.transport in _OPERATORS:
            return True
        # A login of an administrator has their name, and not their rights.
        return caller.is_admin and caller.id.partition(":")[0] in self.admins


class Shares:
    """Counts how many of something each caller has."""

    __slots__ = ("_callers", "_held", "_share", "retry_s", "taken", "total", "what")

    def __init__(self, what: str, total: int, callers: Callers, *, retry_s: float = RETRY_S) -> None:
        """`what` is the plural that errors use."""
        self.what = what
        self.total = total
        self.retry_s = retry_s
        self.taken = 0
        self._callers = callers
        self._share = callers.part_of(total)
        self._held: dict[CallerId, int] = {}

    def __getitem__(self, caller: CallerId) -> int:
        return self._held.get(caller, 0)

    def is_open_to(self, caller: CallerId) -> bool:
        """Whether `take` would succeed."""
        # On the path of every call: a single caller needs no lookup.
        return self.taken < self.total and (not self._callers.are_several or self._held.get(caller, 0) < self._share)

    def take(self, caller: CallerId) -> None:
        """Count one more; raises `QueueOverloaded` at the limit."""
        held = self._held.get(caller, 0)
        if self.taken >= self.total or (self._callers.are_several and held >= self._share):
            raise self.refusal(caller)
        self._held[caller] = held + 1
        self.taken += 1

    def give_back(self, caller: CallerId) -> None:
        self.taken -= 1
        held = self._held[caller]
        if held > 1:
            self._held[caller] = held - 1
        else:
            # Deleted, so that callers who come and go do not fill the memory.
            del self._held[caller]

    @contextmanager
    def held(self, caller: CallerId) -> Iterator[None]:
        """Take one for the duration of the context."""
        self.take(caller)
        try:
            yield
        finally:
            self.give_back(caller)

    def refusal(self, caller: CallerId, *, retry_s: float | None = None) -> QueueOverloaded:
        """Make the error for a caller at the limit."""
        return over_limit(
            self.what, self[caller], self.total, self._callers, retry_s=self.retry_s if retry_s is None else retry_s
        )


def over_limit(
    what: str, held: int, total: int, callers: Callers, *, retry_s: float = RETRY_S, hint: str | None = None
) -> QueueOverloaded:
    """Make the error for a caller with this many; it says whether the caller's share or the total is used up."""
    share = callers.share_of(total)
    if is_own := held >= share:
        message = f"You have {share:,} {what} already, which is the limit for one caller."
    else:
        message = f"There are {total:,} {what} already, which is the limit for all callers."
    limit = share if is_own else total
    return QueueOverloaded(message, retry_s=retry_s, is_own=is_own, hint=hint, limit=limit)


@dataclass(frozen=True, kw_only=True)
class EndpointShares:
    """The limits that callers share at the endpoints."""

    callers: Callers
    calls: Shares
    """In flight, on every transport."""
    sessions: Shares
    """Of the handshake era, over HTTP."""
    streams: Shares
    """Event streams that belong to no call."""


class FairQueue:
    """Admits a number of calls at once; the others wait. Calls of one caller keep their order, and callers take turns.

    In a plain queue, a caller with a thousand waiting calls would make all others wait for them.
    """

    __slots__ = ("_admitted", "_queues", "_waiting")

    def __init__(self, what: str, callers: Callers, *, at_once: int, waiting: int) -> None:
        """`what` is the plural that errors use."""
        self._admitted = Shares(what, at_once, callers)
        self._waiting = Shares(what, waiting, callers)
        # In the order of turns: a caller whose call was admitted moves to the end.
        self._queues: OrderedDict[CallerId, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def is_empty(self) -> bool:
        """Whether no call is admitted or waiting."""
        return not self._admitted.taken and not self._queues

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return self._waiting.taken

    def try_enter(self, caller: CallerId) -> bool:
        """Enter if that needs no waiting; returns whether it did."""
        # Callers that wait while there are free places have used up their share: this overtakes none of them.
        if not self._admitted.is_open_to(caller):
            return False
        self._admitted.take(caller)
        return True

    async def enter(self, caller: CallerId) -> None:
        """Wait for the caller's turn; `leave` must follow. Raises `QueueOverloaded` if too many wait already."""
        if self.try_enter(caller):
            return
        with self._waiting.held(caller):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            queue = self._queues.setdefault(caller, deque())
            queue.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    # Admitted and cancelled at the same moment: pass the place on.
                    self.leave(caller)
                elif turn in queue:
                    queue.remove(turn)
                    if not queue:
                        del self._queues[caller]
                raise

    def leave(self, caller: CallerId) -> None:
        """Leave, and admit the next call."""
        self._admitted.give_back(caller)
        if not self._queues:  # the common case, without a call
            return
        while (following := self._next_caller()) is not None:
            queue = self._queues[following]
            turn = queue.popleft()
            if queue:
                self._queues.move_to_end(following)
            else:
                del self._queues[following]
            if not turn.done():
                self._admitted.take(following)
                turn.set_result(None)
                return

    def _next_caller(self) -> CallerId | None:
        return next((one for one in self._queues if self._admitted.is_open_to(one)), None)
