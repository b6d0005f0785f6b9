"""Warm sessions: each kept under its key until nobody has used it for a while, another one needs its place, or it failed.

A session is opened, kept and closed by one task of its own (`_own`). Whoever wants it joins: prewarming and asking share one
opening. It has a place from before it is opened until it is closed, and there are never more than `size` of those.
"""

import logging
import math
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import TaskGroup

from toolpost.base.events import event
from toolpost.base.ids import CallerId, ThreadId
from toolpost.contracts.errors import GatewayError, QueueOverloaded, ToolpostError, ToolTimedOut
from toolpost.parts.conversations.agent import AgentGone, AgentSession
from toolpost.parts.conversations.metrics import AgentMetrics
from toolpost.parts.conversations.queue import Line
from toolpost.parts.conversations.session_key import PoolKey
from toolpost.shares import Callers, over_limit

_log = logging.getLogger("toolpost.parts.conversations")

OnGone = Callable[[str], None]

RETRY_S: Final = 10.0
"""When to try again where every session is at work: a turn takes a while."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A session that is open, and the last message of its thread that it knows of."""

    session: AgentSession
    told: int = 0


Opener = Callable[[OnGone], AbstractAsyncContextManager[Opened]]
"""Opens a session, and has somebody told when it ends by itself."""


@dataclass(frozen=True, kw_only=True)
class PoolLimits:
    """How many sessions, and how long they are kept."""

    size: int = 8
    idle_s: float = 480.0
    """From the end of the last turn, or the last time that it was to be ready."""
    jitter: float = 0.1
    """By which part of that it varies, so that sessions which were opened together do not end together."""
    sweep_s: float = 60.0
    open_s: float = 60.0
    waiting: int = 100
    """Turns that may wait for a session."""


class Warm:
    """One session, from the wish for it to its end."""

    def __init__(self, key: PoolKey, limits: PoolLimits) -> None:
        self.key = key
        self.told = 0
        """The last message of the thread that it knows of."""
        self.is_fresh = True
        """Whether nobody has used it yet."""
        self.claims = 0
        """How many have it, or wait for it to be opened: while there are any, it is busy."""
        self.idle_since = anyio.current_time()
        self.kept_s = limits.idle_s * (1 + limits.jitter * (2 * random.random() - 1))  # noqa: S311 (no secret)
        self.opened = anyio.Event()
        self.closing = anyio.Event()
        self.closed = anyio.Event()
        self.scope = anyio.CancelScope()
        self.has_place = False
        self.place = anyio.Event()
        self._session: AgentSession | None = None
        self.error: ToolpostError | None = None
        self.gone: str | None = None

    @property
    def session(self) -> AgentSession:
        """The session, once it is open."""
        assert self._session is not None
        return self._session

    @property
    def is_open(self) -> bool:
        """Whether it can be used now."""
        return self._session is not None and not self.closing.is_set()

    @property
    def is_idle(self) -> bool:
        """Whether it could be closed without anybody noticing."""
        return self.is_open and not self.claims

    def open(self, opened: Opened) -> None:
        """Be ready."""
        self._session = opened.session
        self.told = opened.told
        self.idle_since = anyio.current_time()
        self.opened.set()


class Pool:
    """The sessions that are kept."""

    def __init__(self, limits: PoolLimits, metrics: AgentMetrics, callers: Callers | None = None) -> None:
        self.limits = limits
        self.metrics = metrics
        self._callers = callers or Callers()
        self._waiters: dict[object, CallerId] = {}
        self._warm: dict[PoolKey, Warm] = {}
        self._leaving: set[Warm] = set()
        self._lines: dict[PoolKey, Line] = {}
        self._wanting: deque[Warm] = deque()
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def open_running(self) -> AsyncIterator[None]:
        """Keep sessions until this is left; then all of them are closed."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._sweep)
            try:
                yield
            finally:
                self._tasks = None
                for warm in list(self._warm.values()):
                    self._evict(warm, "closing")
                with anyio.CancelScope(shield=True):
                    for warm in list(self._leaving):
                        await warm.closed.wait()
                tasks.cancel_scope.cancel()

    @property
    def waiting(self) -> int:
        """How many turns wait for a session."""
        return len(self._waiters)

    @property
    def sessions(self) -> list[Warm]:
        """Every session that is there or being opened."""
        return list(self._warm.values())

    def has_room_for(self, caller: CallerId) -> bool:
        """Whether another session of this caller could be opened now: a place is free, or an idle session may be closed."""
        places = self._places()
        is_free = places.total() < self.limits.size and places[caller] < self._share
        return is_free or any(self._may_close(warm, caller, places) for warm in self._warm.values())

    def find(self, key: PoolKey) -> Warm | None:
        """Return the session under a key, if it is open."""
        warm = self._warm.get(key)
        return warm if warm is not None and warm.is_open else None

    @asynccontextmanager
    async def lease(self, key: PoolKey, opener: Opener) -> AsyncIterator[Warm]:
        """Have the session of a key, opened if need be, to oneself. Whatever is raised within evicts it, under the same key."""
        line = self._lines.setdefault(key, Line(self.limits.waiting))
        self._refuse_if_overloaded(key, line)
        place = line.join()
        waiter = object()
        self._waiters[waiter] = key.caller
        try:
            async with place.turn():
                warm = await self._claimed(key, opener)
                self._waiters.pop(waiter, None)
                async with self._used(warm):
                    yield warm
        finally:
            self._waiters.pop(waiter, None)
            if line.is_free:
                self._lines.pop(key, None)

    async def prewarm(self, key: PoolKey, opener: Opener) -> Warm:
        """Have a session ready under a key; returns once it is."""
        if key not in self._warm and not self.has_room_for(key.caller):
            raise QueueOverloaded(
                "Every session is at work.",
                retry_s=RETRY_S,
                is_own=self._places()[key.caller] >= self._share,
                hint="the conversation's first message waits for its turn",
            )
        if (kept := self.find(key)) is not None and kept.is_idle and await self._is_there(kept):
            # Whoever prepares a message finds it ready, however long the last one was ago.
            kept.idle_since = anyio.current_time()
            return kept
        warm = self._warm.get(key) or self._start(key, opener)
        await self._joined(warm)
        return warm

    def evict(self, key: PoolKey, reason: str = "error") -> None:
        """End the session of a key, if there is one."""
        if (warm := self._warm.get(key)) is not None:
            self._evict(warm, reason)

    def evict_thread(self, thread: ThreadId, *, but: PoolKey | None = None) -> None:
        """End what idle sessions a thread has under other profiles: what they know of it is out of date from now on."""
        for warm in list(self._warm.values()):
            if warm.key.thread == thread and warm.key != but and warm.is_idle:
                self._evict(warm, "other")

    def _refuse_if_overloaded(self, key: PoolKey, line: Line) -> None:
        waits = not line.is_free or (key not in self._warm and not self.has_room_for(key.caller))
        own = sum(caller == key.caller for caller in self._waiters.values())
        if waits and (self.waiting >= self.limits.waiting or own >= self._callers.share_of(self.limits.waiting)):
            what = "turns waiting for a session"
            raise over_limit(what, own, self.limits.waiting, self._callers, retry_s=RETRY_S)

    async def _claimed(self, key: PoolKey, opener: Opener) -> Warm:
        warm = self._warm.get(key)
        if warm is None:
            self.metrics.agent_turns.add(of="cold")
            warm = self._start(key, opener)
        else:
            self.metrics.agent_turns.add(of="warm" if warm.is_open else "opening")
        await self._joined(warm)
        return warm

    async def _joined(self, warm: Warm) -> None:
        """Wait until a session is open; while anybody does, it is not idle."""
        warm.claims += 1
        try:
            await warm.opened.wait()
        finally:
            warm.claims -= 1
            if not warm.claims and not warm.opened.is_set() and not warm.has_place:
                self._evict(warm, "abandoned")  # Nobody wants it any more, and it was not even begun.
        if warm.error is not None:
            raise warm.error
        if not warm.is_open:
            raise AgentGone(warm.gone or "The session was closed before it could be used.")

    async def _is_there(self, warm: Warm) -> bool:
        """Ask a session whether it still is; one that is not is ended."""
        warm.claims += 1
        try:
            await warm.session.ping()
        except AgentGone:
            self._evict(warm, "gone")
            return False
        finally:
            warm.claims -= 1
            self._make_room()
        return True

    @asynccontextmanager
    async def _used(self, warm: Warm) -> AsyncIterator[None]:
        warm.claims += 1
        try:
            yield
        except AgentGone:
            self._evict(warm, "gone")
            raise
        except Exception:
            self._evict(warm, "error")
            raise
        except BaseException:
            self._evict(warm, "abandoned")
            raise
        finally:
            warm.claims -= 1
            warm.is_fresh = False
            warm.idle_since = anyio.current_time()
            self._make_room()

    def _start(self, key: PoolKey, opener: Opener) -> Warm:
        if self._tasks is None:
            raise GatewayError("the harness is closed")
        warm = self._warm[key] = Warm(key, self.limits)
        self._tasks.start_soon(self._own, warm, opener)
        return warm

    async def _own(self, warm: Warm, opener: Opener) -> None:
        with warm.scope:
            try:
                await self._take_place(warm)
                await self._keep(warm, opener)
            except Exception as raised:  # noqa: BLE001 (whoever waits for the session is told)
                self._failed(warm, raised)
            finally:
                self._forget(warm)

    async def _keep(self, warm: Warm, opener: Opener) -> None:
        started = anyio.current_time()
        with anyio.move_on_after(self.limits.open_s) as limit:
            async with opener(lambda reason: self._lost(warm, reason)) as opened:
                limit.deadline = math.inf
                self.metrics.agent_openings.add()
                self.metrics.agent_opening_seconds.add(anyio.current_time() - started)
                warm.open(opened)
                await warm.closing.wait()
        if limit.cancelled_caught:
            raise ToolTimedOut(
                f"The agent was not ready within {self.limits.open_s:g} s.",
                timeout_ms=round(self.limits.open_s * 1000),
                hint="try its command in a shell; harness.open_s gives it more time",
            )

    def _failed(self, warm: Warm, raised: Exception) -> None:
        while isinstance(raised, ExceptionGroup):
            raised = raised.exceptions[0]
        if warm.opened.is_set():
            event(_log, logging.WARNING, "session ended badly", thread=warm.key.thread, reason=str(raised))
            return
        self.metrics.agent_failures.add()
        event(_log, logging.WARNING, "session could not be opened", thread=warm.key.thread, reason=str(raised))
        warm.error = raised if isinstance(raised, ToolpostError) else GatewayError(cause=raised)

    def _lost(self, warm: Warm, reason: str) -> None:
        warm.gone = reason
        # What is lost while it is opened fails there, and says more: who it was, and its last words.
        if warm.opened.is_set():
            self._evict(warm, "gone")

    def _evict(self, warm: Warm, reason: str) -> None:
        if self._warm.get(warm.key) is not warm:
            return
        del self._warm[warm.key]
        self._leaving.add(warm)
        if warm.opened.is_set():
            self.metrics.agent_evictions.add(of=reason)
            event(_log, logging.INFO, "session ended", thread=warm.key.thread, why=reason)
            warm.closing.set()
        else:
            self._want_no_more(warm)
            warm.scope.cancel()

    def _forget(self, warm: Warm) -> None:
        if self._warm.get(warm.key) is warm:
            del self._warm[warm.key]
        self._leaving.discard(warm)
        self._want_no_more(warm)
        warm.closing.set()
        warm.opened.set()
        warm.closed.set()
        if warm.has_place:
            warm.has_place = False
            self._hand_on()
            self._make_room()

    def _want_no_more(self, warm: Warm) -> None:
        if warm in self._wanting:
            self._wanting.remove(warm)

    async def _take_place(self, warm: Warm) -> None:
        self._wanting.append(warm)
        self._hand_on()
        self._make_room()
        await warm.place.wait()

    @property
    def _share(self) -> int:
        return self._callers.share_of(self.limits.size)

    def _places(self) -> Counter[CallerId]:
        """Count who has how many places, those of sessions that are being closed too."""
        return Counter(warm.key.caller for warm in (*self._warm.values(), *self._leaving) if warm.has_place)

    def _hand_on(self) -> None:
        """Give free places to callers who have the fewest; of those who have as many, to the one who has waited longest."""
        places = self._places()
        while places.total() < self.limits.size:
            within = [warm for warm in self._wanting if places[warm.key.caller] < self._share]
            if not within:
                return
            first = min(within, key=lambda warm: places[warm.key.caller])
            self._wanting.remove(first)
            first.has_place = True
            first.place.set()
            places[first.key.caller] += 1

    def _make_room(self) -> None:
        """Close what has been idle longest, one session for each that waits for a place; a busy one never."""
        places = self._places()
        places.subtract(warm.key.caller for warm in self._leaving if warm.has_place)
        idle = sorted((warm for warm in self._warm.values() if warm.is_idle), key=lambda warm: warm.idle_since)
        for wanting in tuple(self._wanting):
            caller = wanting.key.caller
            if places[caller] >= self._share or places.total() >= self.limits.size:
                closed = next((warm for warm in idle if self._may_close(warm, caller, places)), None)
                if closed is None:
                    continue
                idle.remove(closed)
                places[closed.key.caller] -= 1
                self._evict(closed, "room")
            places[caller] += 1

    def _may_close(self, warm: Warm, caller: CallerId, places: Counter[CallerId]) -> bool:
        """Whether a session is idle and may be closed for another one of this caller: their own, or of one who has more.

        So no number of conversations pushes out those of a caller who has fewer; and nobody waits for ever because others have
        left theirs idle.
        """
        if not warm.is_idle:
            return False
        owner = warm.key.caller
        return owner == caller or (places[caller] < self._share and places[owner] > places[caller] + 1)

    async def _sweep(self) -> None:
        while True:
            await anyio.sleep(min(self.limits.sweep_s, self.limits.idle_s / 4))
            now = anyio.current_time()
            for warm in list(self._warm.values()):
                if warm.is_idle and now - warm.idle_since >= warm.kept_s:
                    self._evict(warm, "idle")
