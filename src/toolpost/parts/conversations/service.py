"""Conversations with agents, from the front door: a message comes in and takes its place in the line of its thread.

What becomes of it there is in `way`.
"""

import logging
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.abc import TaskGroup

from toolpost.authoring.conversation import InvokeOptions, ToolCall, TurnInfo
from toolpost.base.caller import Principal
from toolpost.base.events import event
from toolpost.base.ids import ThreadId, TurnId, new_trace_id, new_turn_id
from toolpost.base.turns import TurnEnded
from toolpost.contracts.errors import CallCancelled, GatewayError, InvalidRequest, NotFound
from toolpost.gateway import Answer
from toolpost.parts.conversations import process_id
from toolpost.parts.conversations.agent import AgentSpec
from toolpost.parts.conversations.agents import Crew
from toolpost.parts.conversations.history import HistoryLimits
from toolpost.parts.conversations.hooks import Hooks
from toolpost.parts.conversations.metrics import AgentMetrics
from toolpost.parts.conversations.other_processes import ASKED_FOR, Elsewhere
from toolpost.parts.conversations.prompt import Asking
from toolpost.parts.conversations.queue import Line, Place
from toolpost.parts.conversations.recorder import Keeping
from toolpost.parts.conversations.running_turns import UnderWay
from toolpost.parts.conversations.session_pool import Pool, PoolLimits, Warm
from toolpost.parts.conversations.turn import TurnRun
from toolpost.parts.conversations.turn_runner import CLOSE_S, Way
from toolpost.shares import Callers
from toolpost.store.key_values import KeyValueStore
from toolpost.store.threads import Thread, Threads
from toolpost.store.wakeups import Wakeups

_log = logging.getLogger("toolpost.parts.conversations")

MESSAGE_LIMIT: Final = 256 * 1024


@dataclass(frozen=True, kw_only=True)
class HarnessLimits:
    """Bounds on conversations."""

    pool: PoolLimits = field(default_factory=PoolLimits)
    history: HistoryLimits = field(default_factory=HistoryLimits)
    waiting: int = 20
    """Messages that may wait in one thread."""
    cancel_s: float = 2.0
    """How long an agent may take to stop when it is told to; after that its session is ended."""
    beat_s: float = 5.0
    kept: int = 100_000
    """Conversations, of all callers."""


class Harness(UnderWay):
    """All conversations of one server."""

    def __init__(
        self,
        threads: Threads,
        crew: Crew,
        hooks: Hooks,
        *,
        limits: HarnessLimits | None = None,
        metrics: AgentMetrics | None = None,
        key_values: KeyValueStore,
        wakeups: Wakeups,
        callers: Callers | None = None,
    ) -> None:
        self.limits = limits or HarnessLimits()
        callers = callers or Callers()
        super().__init__(threads, crew, callers, kept=self.limits.kept)
        self.key_values = key_values
        self.hooks = hooks
        self.pool = Pool(self.limits.pool, metrics or AgentMetrics(), callers)
        self._keeping = Keeping(threads, beat_s=self.limits.beat_s)
        asking = Asking(self.pool, crew, threads, hooks, self.limits.history)
        self._way = Way(asking, self._keeping, hooks, cancel_s=self.limits.cancel_s)
        self._elsewhere = Elsewhere(threads, wakeups, self._keeping.name)
        self._lines: dict[ThreadId, Line] = {}
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def open_running(self) -> AsyncIterator[None]:
        """Take messages until this is left; then turns are stopped, and sessions closed."""
        await self._keeping.mend(self._runs)
        async with self.pool.open_running(), anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._mend_now_and_then)
            tasks.start_soon(self._elsewhere.listen, self._runs)
            try:
                yield
            finally:
                self._tasks = None
                await self._stop_all()
                tasks.cancel_scope.cancel()

    @property
    def shelf(self) -> KeyValueStore:
        """Deprecated name of `key_values`."""
        warnings.warn(
            "`conversations.shelf` is deprecated: use `conversations.key_values`", DeprecationWarning, stacklevel=2
        )
        return self.key_values

    @property
    def default_agent(self) -> str | None:
        """Who answers where nobody is named."""
        return self.crew.default

    def list_agents(self) -> list[AgentSpec]:
        """Return everybody who answers."""
        return [ready.spec for ready in self.crew.agents.values()]

    async def delete_thread(self, standing: Principal, thread: ThreadId) -> None:
        """Forget a thread; a turn that runs in it is stopped."""
        await self.find_thread(standing, thread)
        for run in self.runs_of(thread):
            run.stop("cancelled", "the thread was deleted")
            await run.done.wait()
        await self._elsewhere.end(thread, within_s=self.limits.cancel_s + CLOSE_S)
        self.pool.evict_thread(thread)
        await self.threads.delete(thread)

    async def handle_message(
        self, standing: Principal, thread: ThreadId, text: str, options: InvokeOptions | None = None
    ) -> TurnEnded:
        """Answer a message, and return how that ended. Whoever is cancelled while waiting for it cancels the turn."""
        run = await self.start_message(standing, thread, text, options)
        try:
            await run.done.wait()
        except BaseException:
            run.stop("cancelled", "whoever asked is gone")
            raise
        assert run.ended is not None
        return run.ended

    async def start_message(
        self, standing: Principal, thread: ThreadId, text: str, options: InvokeOptions | None = None
    ) -> TurnRun:
        """Accept a message; it is answered in its turn, whoever listens. A refusal is raised at once."""
        options = options or InvokeOptions()
        _check_text(text)
        _check_thread(thread, options)
        # The place is taken before anything is waited for: the order of messages is the order of these calls.
        line = self._lines.setdefault(thread, Line(self.limits.waiting))
        place = line.join()
        try:
            found = await self.find_thread(standing, thread)
            run = self._run_of(standing, found, text, options)
            if self._tasks is None:
                raise CallCancelled("The server is shutting down.")
        except BaseException:
            self._leave(thread, line, place)
            raise
        self._runs[run.info.turn] = run
        self._elsewhere.wanted.set()
        self._tasks.start_soon(self._live, run, line, place)
        return run

    async def invoke(self, standing: Principal, prompt: str, options: InvokeOptions | None = None) -> TurnEnded:
        """Ask an agent and keep nothing: in the session of a thread, else in one that is named, else in the caller's own."""
        options = options or InvokeOptions()
        _check_text(prompt)
        thread = await self.find_thread(standing, options.thread) if options.thread is not None else None
        wanted = self.crew.session_for(standing, options, thread)
        spec = wanted.profile.spec
        info = TurnInfo(
            thread=thread.id if thread is not None else ThreadId(""),
            turn=new_turn_id(),
            trace_id=new_trace_id(),
            caller=standing.caller,
            agent=spec.name,
            model=wanted.profile.model,
        )
        run = TurnRun(info, standing, prompt, timeout_s=options.timeout_s or spec.timeout_s, details={})
        if options.on_event is not None:
            run.listeners.add(options.on_event)
        run.thread = thread
        if thread is not None:
            self._runs[info.turn] = run
        try:
            return await self._way.go_aside(run, wanted)
        finally:
            self._runs.pop(info.turn, None)
            run.done.set()
            run.is_over.set()

    def has_room_for(self, standing: Principal) -> bool:
        """Whether a conversation of this caller that has no session yet would get one now, without waiting for others."""
        return self.pool.has_room_for(standing.caller.id)

    def is_warm(self, thread: ThreadId) -> bool:
        """Whether a thread has a session that is ready."""
        return any(warm.key.thread == thread and warm.is_open for warm in self.pool.sessions)

    async def cancel(self, standing: Principal, thread: ThreadId, turn: TurnId | None = None) -> list[TurnId]:
        """Stop a turn of a thread, or all that have not ended, whichever process runs them; returns which were told to."""
        await self.find_thread(standing, thread)
        runs = [run for run in self.runs_of(thread) if turn is None or run.info.turn == turn]
        for run in runs:
            run.stop("cancelled", ASKED_FOR)
        told = [run.info.turn for run in runs]
        if turn is None or not told:
            told += await self._elsewhere.ask(thread, turn)
        if turn is not None and not told:
            raise NotFound("No such turn is running in this thread.", turn=turn[:64])
        return told

    async def prewarm(self, standing: Principal, thread: ThreadId, options: InvokeOptions | None = None) -> Warm:
        """Have the session of a thread ready before its next message comes; returns once it is."""
        options = options or InvokeOptions()
        _check_thread(thread, options)
        found = await self.find_thread(standing, thread)
        wanted = self.crew.session_for(standing, options, found)
        return await self.pool.prewarm(wanted.key, wanted.opener)

    async def _live(self, run: TurnRun, line: Line, place: Place) -> None:
        try:
            async with run.watched(self.limits.cancel_s):
                with run.stoppable():
                    await place.wait()
                await self._way.go(run)
        finally:
            self._leave(run.info.thread, line, place)
            self._runs.pop(run.info.turn, None)
            run.done.set()
            run.is_over.set()

    def _run_of(self, standing: Principal, thread: Thread, text: str, options: InvokeOptions) -> TurnRun:
        name = self.crew.name_for(options, thread)
        spec = self.crew.find(name).spec if name or not self.hooks.has("toolpost_classify") else None
        info = TurnInfo(
            thread=thread.id,
            turn=new_turn_id(),
            trace_id=new_trace_id(),
            caller=standing.caller,
            agent=name,
            model=self.crew.model_for(options, thread) or (spec.model if spec else None),
        )
        timeout_s = options.timeout_s or (spec.timeout_s if spec else 600.0)
        run = TurnRun(info, standing, text, timeout_s=timeout_s, details={})
        run.thread = thread
        run.listeners |= self._listeners.get(thread.id, set())
        if options.on_event is not None:
            run.listeners.add(options.on_event)
        return run

    def note_call(self, answer: Answer) -> None:
        """Have plugins told of a call that a conversation's agent has made."""
        call = answer.call
        thread = call.caller.thread
        if thread is None or self._tasks is None or not self.hooks.has("toolpost_on_tool_call"):
            return
        run = next(iter(self.runs_of(thread)), None)
        told = ToolCall(
            thread=thread,
            turn=run.info.turn if run is not None else None,
            trace_id=call.trace_id,
            call_id=call.id,
            tool=call.tool.contract.name,
            arguments=call.arguments,
            code=answer.code,
            duration_ms=call.duration_ms,
        )
        self._tasks.start_soon(self._notify_of_call, told)

    async def _notify_of_call(self, call: ToolCall) -> None:
        await self.hooks.notify("toolpost_on_tool_call", call=call)

    def _leave(self, thread: ThreadId, line: Line, place: Place) -> None:
        place.leave()
        if line.is_free:
            self._lines.pop(thread, None)

    async def _mend_now_and_then(self) -> None:
        while True:
            await anyio.sleep(process_id.STALE_S)
            try:
                await self._keeping.mend(self._runs)
            except GatewayError as error:
                event(_log, logging.WARNING, "turns could not be looked through", reason=error.message)

    async def _stop_all(self) -> None:
        runs = self.runs
        for run in runs:
            run.stop("closing", "the server is shutting down")
        with anyio.move_on_after(CLOSE_S, shield=True):
            for run in runs:
                await run.is_over.wait()


def _check_text(text: str) -> None:
    if not text.strip():
        raise InvalidRequest("The message is empty.")
    if len(text) > MESSAGE_LIMIT:
        raise InvalidRequest(f"A message has at most {MESSAGE_LIMIT} characters.", hint="put the rest into a file")


def _check_thread(thread: ThreadId, options: InvokeOptions) -> None:
    if options.thread not in (None, thread):
        raise InvalidRequest("The options name another thread.", hint="leave `thread` out of the options")
