"""Fair shares: how much of anything limited one caller may have, and who goes next where calls have to wait.

Everything that is limited is limited twice: in total, and for one caller where there are several. `Callers` says whether there
are; `Shares` counts what each of them holds, and refuses at once; a `FairQueue` lets calls wait, and serves callers by turns.

Example: `limits.calls` is 1,024 and two callers are configured. One of them gets 512 calls in flight, the next is refused with
QUEUE_OVERLOADED, and the other one does not notice. The agent of a conversation counts as the caller who leads it, because
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

HALF: Final = 0.5

RETRY_S: Final = 1.0
"""When to try again what is given back with the end of a call."""

_OPERATORS: Final = frozenset({"stdio", "memory", "cli"})
"""Transports that only the person who started the process can use."""


class Callers:
    """Who shares the gateway: whether several callers do, and who of them may see all calls. The roster keeps it current."""

    def __init__(self, part: float = HALF) -> None:
        self.part = part
        """Of every limit, how much one of several callers may have."""
        self.are_several = False
        self.admins: frozenset[str] | None = None
        """Names of callers with `admin = true`; None where nobody is asked for a name."""

    def share_of(self, total: int) -> int:
        """Return how much of `total` one caller may have."""
        return self.part_of(total) if self.are_several else total

    def part_of(self, total: int) -> int:
        """Return how much of `total` one of several callers may have."""
        return max(1, int(total * self.part))

    def may_see_all(self, caller: Caller) -> bool:
        """Whether a caller may learn of every other caller's calls. An agent may not, whoever it acts for."""
        if caller.transport == "agent" or caller.thread is not None:
            return False
        if self.admins is None or caller.transport in _OPERATORS:
            return True
        return caller.id.partition(":")[0] in self.admins


class Shares:
    """Counts how much of something each caller holds."""

    __slots__ = ("_callers", "_held", "_share", "retry_s", "taken", "total", "what")

    def __init__(self, what: str, total: int, callers: Callers, *, retry_s: float = RETRY_S) -> None:
        """Take what is counted, in the plural, as errors name it."""
        self.what = what
        self.total = total
        self.retry_s = retry_s
        self.taken = 0
        self._callers = callers
        self._share = callers.part_of(total)
        self._held: dict[CallerId, int] = {}

    def __getitem__(self, caller: CallerId) -> int:
        """Return how much a caller holds."""
        return self._held.get(caller, 0)

    def is_open_to(self, caller: CallerId) -> bool:
        """Whether a caller would get one more."""
        # On the path of every call: where one caller may have all, there is nothing to look up.
        return self.taken < self.total and (not self._callers.are_several or self._held.get(caller, 0) < self._share)

    def take(self, caller: CallerId) -> None:
        """Hold one more, or raise `QueueOverloaded`."""
        held = self._held.get(caller, 0)
        if self.taken >= self.total or (self._callers.are_several and held >= self._share):
            raise self.refusal(caller)
        self._held[caller] = held + 1
        self.taken += 1

    def give_back(self, caller: CallerId) -> None:
        """Hold one less."""
        self.taken -= 1
        held = self._held[caller]
        if held > 1:
            self._held[caller] = held - 1
        else:
            # Forgotten, so that callers who come and go leave nothing behind.
            del self._held[caller]

    @contextmanager
    def held(self, caller: CallerId) -> Iterator[None]:
        """Hold one for as long as this lasts."""
        self.take(caller)
        try:
            yield
        finally:
            self.give_back(caller)

    def refusal(self, caller: CallerId, *, retry_s: float | None = None) -> QueueOverloaded:
        """Make the error for a caller who gets no more."""
        return over_limit(
            self.what, self[caller], self.total, self._callers, retry_s=self.retry_s if retry_s is None else retry_s
        )


def over_limit(
    what: str, held: int, total: int, callers: Callers, *, retry_s: float = RETRY_S, hint: str | None = None
) -> QueueOverloaded:
    """Make the error for a caller who holds this many; it says whether their own share is used up, or everything is."""
    share = callers.share_of(total)
    if is_own := held >= share:
        message = f"You have {share:,} {what} already, which is the limit for one caller."
    else:
        message = f"There are {total:,} {what} already, which is the limit for all callers."
    limit = share if is_own else total
    return QueueOverloaded(message, retry_s=retry_s, is_own=is_own, hint=hint, limit=limit)


@dataclass(frozen=True, kw_only=True)
class EndpointShares:
    """What callers share at the endpoints."""

    callers: Callers
    calls: Shares
    """In flight, on every transport."""
    sessions: Shares
    """Of the handshake era, over HTTP."""
    streams: Shares
    """Of events, that belong to no call."""


class FairQueue:
    """Lets so many in at once; the rest waits. A caller's calls keep their order, and callers take turns.

    With a plain queue, a caller with a thousand waiting calls would make everybody else wait for all of them.
    """

    __slots__ = ("_inside", "_lines", "_places")

    def __init__(self, what: str, callers: Callers, *, at_once: int, waiting: int) -> None:
        """Take what waits, in the plural, as errors name it."""
        self._inside = Shares(what, at_once, callers)
        self._places = Shares(what, waiting, callers)
        # The caller who is served next comes first; one who was just served goes to the end.
        self._lines: OrderedDict[CallerId, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it, or waits to be."""
        return not self._inside.taken and not self._lines

    def try_enter(self, caller: CallerId) -> bool:
        """Go in if that needs no waiting."""
        # Whoever waits although there is room has used up their own share: nobody is overtaken.
        if not self._inside.is_open_to(caller):
            return False
        self._inside.take(caller)
        return True

    async def enter(self, caller: CallerId) -> None:
        """Go in when it is one's turn; `leave` must follow. Raises `QueueOverloaded` if too many wait already."""
        if self.try_enter(caller):
            return
        with self._places.held(caller):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            line = self._lines.setdefault(caller, deque())
            line.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    # Let in and called off in the same moment: the turn goes on to whoever is next.
                    self.leave(caller)
                elif turn in line:
                    line.remove(turn)
                    if not line:
                        del self._lines[caller]
                raise

    def leave(self, caller: CallerId) -> None:
        """Go out, and let the next one in."""
        self._inside.give_back(caller)
        while (following := self._next_caller()) is not None:
            line = self._lines[following]
            turn = line.popleft()
            if line:
                self._lines.move_to_end(following)
            else:
                del self._lines[following]
            if not turn.done():
                self._inside.take(following)
                turn.set_result(None)
                return

    def _next_caller(self) -> CallerId | None:
        return next((one for one in self._lines if self._inside.is_open_to(one)), None)
