"""A pool of open agent sessions by key. One is closed when it is idle too long, when another needs its slot, or when it fails.

Each session has a task of its own (`_run_session`) that opens, keeps and closes it, because an agent's context managers must be
left in the task that entered them. Others only wait for its events, so prewarming and prompting share one opening. A session has
a slot from before it is opened until it is closed, and there are never more than `size` slots.

Slots are shared fairly. A free slot goes to the waiting caller who has the fewest. Without a free slot, an idle session is closed
for a waiting one: a session of the same caller, or of a caller who has at least two more. No caller has more than a share of the
slots (`Callers.share_of`). For example, with a share of three, all four slots are taken, three by idle sessions of Ada and one by
Bob: Bob's second session closes the one of Ada's that was idle longest; his third would leave her with fewer than him, so it
waits for a turn of his own to end.
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

from toolpost import CallerId, QueueOverloaded, ToolpostError
from toolpost.base import ThreadId, event
from toolpost.contracts import GatewayError, ToolTimedOut
from toolpost.fairness import Callers, over_limit
from toolpost.metrics import Counter as MetricCounter
from toolpost.metrics import Metrics
from toolpost.parts.agents.agent import AgentGone, AgentSession, unwrap_group
from toolpost.parts.agents.queue import KeyedQueues
from toolpost.parts.agents.session_key import PoolKey

_log = logging.getLogger("toolpost.parts.agents")

OnGone = Callable[[str], None]

RETRY_S: Final = 10.0
"""When to try again if every session is busy, in seconds: a turn takes a while."""


class AgentMetrics:
    """Counters of turns and agent sessions, among the metrics of a gateway."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        metrics = metrics or Metrics()
        self.agent_turns = metrics.add(
            MetricCounter(
                "toolpost_agent_turns_total",
                "Turns, by how they found a session: warm, opening or cold.",
                label="found",
            )
        )
        self.agent_openings = metrics.add(
            MetricCounter("toolpost_agent_sessions_opened_total", "Sessions of agents that were opened.")
        )
        self.agent_opening_seconds = metrics.add(
            MetricCounter("toolpost_agent_session_opening_seconds_total", "Time that opening sessions of agents took.")
        )
        self.agent_failures = metrics.add(
            MetricCounter("toolpost_agent_sessions_failed_total", "Sessions of agents that could not be opened.")
        )
        self.agent_evictions = metrics.add(
            MetricCounter(
                "toolpost_agent_sessions_ended_total", "Sessions of agents that were ended, by why.", label="why"
            )
        )

    @property
    def warm_ratio(self) -> float:
        """The share of turns that found a warm session, from 0 to 1; 0 without turns."""
        warm, opening, cold = (self.agent_turns.value(found) for found in ("warm", "opening", "cold"))
        return warm / (warm + opening + cold) if warm + opening + cold else 0.0


@dataclass(frozen=True, kw_only=True)
class OpenedSession:
    """A session that an agent has opened, and the `seq` of the last message of its thread that it knows."""

    session: AgentSession
    known_seq: int = 0


SessionOpener = Callable[[OnGone], AbstractAsyncContextManager[OpenedSession]]
"""Opens a session; calls back with the reason if the agent closes it."""


OPEN_S: Final = 60.0
"""How long an agent may take to start, in seconds."""


@dataclass(frozen=True, kw_only=True)
class PoolLimits:
    """Limits of a pool."""

    size: int = 8
    idle_s: float = 480.0
    """Counted from the end of the last turn or from the last prewarming."""
    jitter: float = 0.1
    """By which part `idle_s` varies, so that sessions which were opened together are not closed together."""
    sweep_s: float = 60.0
    open_s: float = OPEN_S
    waiting: int = 100
    """Turns that may wait for a session."""


class PooledSession:
    """One session, from the request for it until it is closed."""

    def __init__(self, key: PoolKey, limits: PoolLimits) -> None:
        self.key = key
        self.known_seq = 0
        """The `seq` of the last message of the thread that the session knows."""
        self.claims = 0
        """How many use it or wait for it to be opened; it is idle at 0."""
        self.idle_since = anyio.current_time()
        self.idle_limit_s = limits.idle_s * (1 + limits.jitter * (2 * random.random() - 1))  # noqa: S311 (no secret)
        self.opened = anyio.Event()
        self.closing = anyio.Event()
        self.closed = anyio.Event()
        self.scope = anyio.CancelScope()
        self.has_slot = False
        self.slot_given = anyio.Event()
        self._session: AgentSession | None = None
        self.error: ToolpostError | None = None
        self.gone: str | None = None

    @property
    def session(self) -> AgentSession:
        """The session of the agent; only once it is open."""
        assert self._session is not None
        return self._session

    @property
    def is_open(self) -> bool:
        return self._session is not None and not self.closing.is_set()

    @property
    def is_idle(self) -> bool:
        """Whether it is open and unused."""
        return self.is_open and not self.claims

    def open(self, opened: OpenedSession) -> None:
        """Take the session that the agent has opened, and release the waiters."""
        self._session = opened.session
        self.known_seq = opened.known_seq
        self.idle_since = anyio.current_time()
        self.opened.set()


class SessionPool:
    """Open sessions by their keys."""

    def __init__(self, limits: PoolLimits, metrics: AgentMetrics, callers: Callers | None = None) -> None:
        self.limits = limits
        self.metrics = metrics
        self._callers = callers or Callers()
        self._waiting_turns: dict[object, CallerId] = {}
        self._by_key: dict[PoolKey, PooledSession] = {}
        """Sessions that are open or being opened."""
        self._closing: set[PooledSession] = set()
        """Evicted and not closed yet: they still have their slot."""
        self.queues: KeyedQueues[PoolKey] = KeyedQueues(limits.waiting)
        self._waiting_for_slot: deque[PooledSession] = deque()
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def open_running(self) -> AsyncIterator[None]:
        """Open sessions on demand until the block is left; then close all of them."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._sweep)
            try:
                yield
            finally:
                self._tasks = None
                for pooled in list(self._by_key.values()):
                    self._evict(pooled, "closing")
                # Shielded: agents' processes have to end even if the server is cancelled.
                with anyio.CancelScope(shield=True):
                    for pooled in list(self._closing):
                        await pooled.closed.wait()
                tasks.cancel_scope.cancel()

    @property
    def waiting(self) -> int:
        """The number of turns that wait for a session."""
        return len(self._waiting_turns)

    @property
    def sessions(self) -> list[PooledSession]:
        """Every session that is open or being opened."""
        return list(self._by_key.values())

    def has_room_for(self, caller: CallerId) -> bool:
        """Whether another session of this caller could be opened now: a slot is free, or an idle session may be closed for it."""
        slots = self._count_slots()
        is_free = slots.total() < self.limits.size and slots[caller] < self._share
        return is_free or any(self._may_close(pooled, caller, slots) for pooled in self._by_key.values())

    def find(self, key: PoolKey) -> PooledSession | None:
        """Return the session of a key, None if there is none or it is not open yet."""
        pooled = self._by_key.get(key)
        return pooled if pooled is not None and pooled.is_open else None

    @asynccontextmanager
    async def lease(self, key: PoolKey, opener: SessionOpener) -> AsyncIterator[PooledSession]:
        """Hold the session of a key, opened if necessary, alone. Any exception raised in the block closes it.

        Raises `QueueOverloaded` if too many turns wait, and what opening the session raised.
        """
        self._refuse_if_overloaded(key)
        place = self.queues.join(key)
        waiter = object()
        self._waiting_turns[waiter] = key.caller
        try:
            async with place.wait_first():
                pooled = await self._claim(key, opener)
                # Turns in progress do not count against the limit of waiting ones.
                self._waiting_turns.pop(waiter, None)
                async with self._use(pooled):
                    yield pooled
        finally:
            self._waiting_turns.pop(waiter, None)

    async def prewarm(self, key: PoolKey, opener: SessionOpener) -> PooledSession:
        """Open the session of a key, or check that the open one still answers; return once it is open."""
        if key not in self._by_key and not self.has_room_for(key.caller):
            raise QueueOverloaded(
                "All agent sessions are busy.",
                retry_s=RETRY_S,
                is_own=self._count_slots()[key.caller] >= self._share,
                hint="send the message: it waits for a session",
            )
        if (found := self.find(key)) is not None and found.is_idle and await self._is_alive(found):
            # The message may come late: its session stays open as long as after a turn.
            found.idle_since = anyio.current_time()
            return found
        pooled = self._by_key.get(key) or self._start(key, opener)
        await self._wait_open(pooled)
        return pooled

    def evict(self, key: PoolKey, reason: str = "error") -> None:
        """Close the session of a key, if there is one."""
        if (pooled := self._by_key.get(key)) is not None:
            self._evict(pooled, reason)

    def evict_thread(self, thread: ThreadId, *, but: PoolKey | None = None) -> None:
        """Close idle sessions of a thread, except `but`: they would miss the coming messages."""
        for pooled in list(self._by_key.values()):
            if pooled.key.thread == thread and pooled.key != but and pooled.is_idle:
                self._evict(pooled, "other")

    def _refuse_if_overloaded(self, key: PoolKey) -> None:
        waits = not self.queues.is_free(key) or (key not in self._by_key and not self.has_room_for(key.caller))
        own = sum(caller == key.caller for caller in self._waiting_turns.values())
        if waits and (self.waiting >= self.limits.waiting or own >= self._callers.share_of(self.limits.waiting)):
            what = "turns waiting for a session"
            raise over_limit(what, own, self.limits.waiting, self._callers, retry_s=RETRY_S)

    async def _claim(self, key: PoolKey, opener: SessionOpener) -> PooledSession:
        pooled = self._by_key.get(key)
        if pooled is None:
            self.metrics.agent_turns.add(of="cold")
            pooled = self._start(key, opener)
        else:
            self.metrics.agent_turns.add(of="warm" if pooled.is_open else "opening")
        await self._wait_open(pooled)
        return pooled

    async def _wait_open(self, pooled: PooledSession) -> None:
        """Wait until a session is open; raises what opening it raised. It counts as busy until then."""
        pooled.claims += 1
        try:
            await pooled.opened.wait()
        finally:
            pooled.claims -= 1
            if not pooled.claims and not pooled.opened.is_set() and not pooled.has_slot:
                self._evict(pooled, "abandoned")  # The last waiter was cancelled before the opening had started.
        if pooled.error is not None:
            raise pooled.error
        if not pooled.is_open:
            raise AgentGone(pooled.gone or "The session was closed before it could be used.")

    async def _is_alive(self, pooled: PooledSession) -> bool:
        """Ping a session, and close it if there is no answer."""
        pooled.claims += 1
        try:
            await pooled.session.ping()
        except AgentGone:
            self._evict(pooled, "gone")
            return False
        finally:
            pooled.claims -= 1
            self._evict_for_waiting()
        return True

    @asynccontextmanager
    async def _use(self, pooled: PooledSession) -> AsyncIterator[None]:
        pooled.claims += 1
        try:
            yield
        except AgentGone:
            self._evict(pooled, "gone")
            raise
        except Exception:
            self._evict(pooled, "error")
            raise
        except BaseException:
            # A turn that is cancelled leaves the agent in the middle of its answer, which the next turn would receive.
            self._evict(pooled, "abandoned")
            raise
        finally:
            pooled.claims -= 1
            pooled.idle_since = anyio.current_time()
            self._evict_for_waiting()

    def _start(self, key: PoolKey, opener: SessionOpener) -> PooledSession:
        if self._tasks is None:
            raise GatewayError("the session pool is closed")
        pooled = self._by_key[key] = PooledSession(key, self.limits)
        self._tasks.start_soon(self._run_session, pooled, opener)
        return pooled

    async def _run_session(self, pooled: PooledSession, opener: SessionOpener) -> None:
        with pooled.scope:
            try:
                self._waiting_for_slot.append(pooled)
                self._assign_slots()
                self._evict_for_waiting()
                await pooled.slot_given.wait()
                await self._hold_open(pooled, opener)
            except Exception as raised:  # noqa: BLE001 (raised in the waiters, by `_wait_open`)
                self._note_failure(pooled, raised)
            finally:
                self._remove(pooled)

    async def _hold_open(self, pooled: PooledSession, opener: SessionOpener) -> None:
        """Open a session within `open_s`, and close it when `closing` is set; raises `ToolTimedOut`."""
        started = anyio.current_time()
        with anyio.move_on_after(self.limits.open_s) as limit:
            async with opener(lambda reason: self._note_gone(pooled, reason)) as opened:
                # The time limit is for opening alone.
                limit.deadline = math.inf
                self.metrics.agent_openings.add()
                self.metrics.agent_opening_seconds.add(anyio.current_time() - started)
                pooled.open(opened)
                await pooled.closing.wait()
        if limit.cancelled_caught:
            raise ToolTimedOut(
                f"The agent was not ready within {self.limits.open_s:g} s.",
                timeout_ms=round(self.limits.open_s * 1000),
                hint="run its command in a shell, to find out why",
            )

    def _note_failure(self, pooled: PooledSession, raised: Exception) -> None:
        raised = unwrap_group(raised)
        if pooled.opened.is_set():
            event(_log, logging.WARNING, "session ended with an error", thread=pooled.key.thread, reason=str(raised))
            return
        self.metrics.agent_failures.add()
        event(_log, logging.WARNING, "session could not be opened", thread=pooled.key.thread, reason=str(raised))
        pooled.error = raised if isinstance(raised, ToolpostError) else GatewayError(cause=raised)

    def _note_gone(self, pooled: PooledSession, reason: str) -> None:
        pooled.gone = reason
        # While it is being opened, `opener` raises a better error itself, with the command and what it wrote to stderr.
        if pooled.opened.is_set():
            self._evict(pooled, "gone")

    def _evict(self, pooled: PooledSession, reason: str) -> None:
        # It was evicted before, and its key may have a new session.
        if self._by_key.get(pooled.key) is not pooled:
            return
        del self._by_key[pooled.key]
        self._closing.add(pooled)
        if pooled.opened.is_set():
            self.metrics.agent_evictions.add(of=reason)
            event(_log, logging.INFO, "session ended", thread=pooled.key.thread, why=reason)
            pooled.closing.set()
        else:
            self._stop_waiting(pooled)
            pooled.scope.cancel()

    def _remove(self, pooled: PooledSession) -> None:
        if self._by_key.get(pooled.key) is pooled:
            del self._by_key[pooled.key]
        self._closing.discard(pooled)
        self._stop_waiting(pooled)
        # `opened` is set for a session that failed, too: its waiters find `error`, or that it is not open.
        pooled.closing.set()
        pooled.opened.set()
        pooled.closed.set()
        if pooled.has_slot:
            pooled.has_slot = False
            self._assign_slots()
            self._evict_for_waiting()

    def _stop_waiting(self, pooled: PooledSession) -> None:
        if pooled in self._waiting_for_slot:
            self._waiting_for_slot.remove(pooled)

    @property
    def _share(self) -> int:
        return self._callers.share_of(self.limits.size)

    def _count_slots(self) -> Counter[CallerId]:
        """Count the slots of each caller, those of sessions that are being closed too."""
        return Counter(pooled.key.caller for pooled in (*self._by_key.values(), *self._closing) if pooled.has_slot)

    def _assign_slots(self) -> None:
        """Give free slots to the waiting callers who have the fewest; among equals, to the one who has waited longest."""
        slots = self._count_slots()
        while slots.total() < self.limits.size:
            within = [pooled for pooled in self._waiting_for_slot if slots[pooled.key.caller] < self._share]
            if not within:
                return
            first = min(within, key=lambda pooled: slots[pooled.key.caller])
            self._waiting_for_slot.remove(first)
            first.has_slot = True
            first.slot_given.set()
            slots[first.key.caller] += 1

    def _evict_for_waiting(self) -> None:
        """Close the sessions that were idle longest, one for each that waits for a slot; never a busy one."""
        slots = self._count_slots()
        # Slots of sessions that are being closed are about to be free: no further session is closed for them.
        slots.subtract(pooled.key.caller for pooled in self._closing if pooled.has_slot)
        idle = sorted(
            (pooled for pooled in self._by_key.values() if pooled.is_idle), key=lambda pooled: pooled.idle_since
        )
        for waiting in tuple(self._waiting_for_slot):
            caller = waiting.key.caller
            if slots[caller] >= self._share or slots.total() >= self.limits.size:
                closed = next((pooled for pooled in idle if self._may_close(pooled, caller, slots)), None)
                if closed is None:
                    continue
                idle.remove(closed)
                slots[closed.key.caller] -= 1
                self._evict(closed, "room")
            slots[caller] += 1

    def _may_close(self, pooled: PooledSession, caller: CallerId, slots: Counter[CallerId]) -> bool:
        """Whether a session is idle and may be closed for another one of this caller.

        It may if it is the caller's own, or of a caller who has at least two more. So no number of conversations pushes out those
        of a caller who has fewer, and no caller waits forever because others leave their sessions idle.
        """
        if not pooled.is_idle:
            return False
        owner = pooled.key.caller
        return owner == caller or (slots[caller] < self._share and slots[owner] > slots[caller] + 1)

    async def _sweep(self) -> None:
        while True:
            # Often enough that a session overstays `idle_s` by a quarter at most.
            await anyio.sleep(min(self.limits.sweep_s, self.limits.idle_s / 4))
            now = anyio.current_time()
            for pooled in list(self._by_key.values()):
                if pooled.is_idle and now - pooled.idle_since >= pooled.idle_limit_s:
                    self._evict(pooled, "idle")
