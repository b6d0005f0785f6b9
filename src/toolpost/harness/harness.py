"""Conversations with agents: a message comes in, hooks hear it, an agent answers, and all of it is kept.

The way of a turn is `_live`: its place in the thread's line, its message kept, its answer found (`_answered`), its end kept.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.abc import TaskGroup

from toolpost.authoring.conversation import InvokeOptions, ToolCall, TurnInfo
from toolpost.contracts.caller import Standing
from toolpost.contracts.errors import CallCancelled, GatewayError, InvalidRequest, NotFound
from toolpost.contracts.events import event
from toolpost.contracts.ids import (
    JsonObject,
    ThreadId,
    TurnId,
    new_trace_id,
    new_turn_id,
)
from toolpost.contracts.turns import TurnEnded, TurnState, Warmth
from toolpost.gateway import Answer
from toolpost.harness import runner
from toolpost.harness.crew import Crew, Wanted
from toolpost.harness.history import History, HistoryLimits, history_of
from toolpost.harness.hooks import Hooks
from toolpost.harness.keeping import Keeping
from toolpost.harness.line import Line, Place
from toolpost.harness.pool import Pool, PoolLimits, Warm
from toolpost.harness.port import AgentGone, AgentSpec
from toolpost.harness.turn import TurnRun
from toolpost.harness.under_way import UnderWay
from toolpost.metrics import Metrics
from toolpost.store.shelf import Shelf
from toolpost.store.threads import Ending, Thread, Threads

_log = logging.getLogger("toolpost.harness")

MESSAGE_LIMIT: Final = 256 * 1024
TITLE_LIMIT: Final = 80
CLOSE_S: Final = 3.0
"""How long turns may take to stop when the server ends."""


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


class Harness(UnderWay):
    """All conversations of one server."""

    def __init__(
        self,
        threads: Threads,
        crew: Crew,
        hooks: Hooks,
        *,
        limits: HarnessLimits | None = None,
        metrics: Metrics | None = None,
        shelf: Shelf,
    ) -> None:
        super().__init__(threads, crew)
        self.shelf = shelf
        self.hooks = hooks
        self.limits = limits or HarnessLimits()
        self.pool = Pool(self.limits.pool, metrics or Metrics())
        self._keeping = Keeping(threads, beat_s=self.limits.beat_s)
        self._lines: dict[ThreadId, Line] = {}
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def open_running(self) -> AsyncIterator[None]:
        """Take messages until this is left; then turns are stopped, and sessions closed."""
        await self._keeping.mend(self._runs)
        async with self.pool.open_running(), anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._mend_now_and_then)
            try:
                yield
            finally:
                self._tasks = None
                await self._stop_all()
                tasks.cancel_scope.cancel()

    @property
    def default_agent(self) -> str | None:
        """Who answers where nobody is named."""
        return self.crew.default

    def list_agents(self) -> list[AgentSpec]:
        """Return everybody who answers."""
        return [ready.spec for ready in self.crew.agents.values()]

    async def delete_thread(self, standing: Standing, thread: ThreadId) -> None:
        """Forget a thread; a turn that runs in it is stopped."""
        await self.find_thread(standing, thread)
        for run in self.runs_of(thread):
            run.stop("cancelled", "the thread was deleted")
            await run.done.wait()
        self.pool.evict_thread(thread)
        await self.threads.delete(thread)

    async def handle_message(
        self, standing: Standing, thread: ThreadId, text: str, options: InvokeOptions | None = None
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
        self, standing: Standing, thread: ThreadId, text: str, options: InvokeOptions | None = None
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
        self._tasks.start_soon(self._live, run, line, place)
        return run

    async def invoke(self, standing: Standing, prompt: str, options: InvokeOptions | None = None) -> TurnEnded:
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
            raised = await self._invoked(run, wanted)
        finally:
            self._runs.pop(info.turn, None)
            run.done.set()
            run.is_over.set()
        state, error = run.outcome(raised)
        ended = _ended(run, state, error, None)
        run.tell(ended)
        return ended

    async def _invoked(self, run: TurnRun, wanted: Wanted) -> Exception | None:
        timer = asyncio.get_running_loop().call_later(run.timeout_s, run.stop, "timeout", "it took too long")
        try:
            async with anyio.create_task_group() as beside:
                beside.start_soon(run.watch, self.limits.cancel_s)
                with run.stoppable():
                    await self._retried(run, wanted, lambda: self._asked_plainly(run, wanted))
                beside.cancel_scope.cancel()
        except Exception as error:  # noqa: BLE001 (whatever happens, there is one end)
            return _first(error)
        finally:
            timer.cancel()
        return None

    async def _asked_plainly(self, run: TurnRun, wanted: Wanted) -> None:
        is_warm = self.pool.find(wanted.key) is not None
        async with self.pool.lease(wanted.key, wanted.opener) as warm:
            thread = await self.threads.find(run.thread.id) if run.thread is not None else None
            up_to = thread.last_seq if thread is not None else 0
            history = await self._history(run, told=warm.told, up_to=up_to)
            run.tell(Warmth(is_warm=is_warm, told=len(history.messages)))
            await run.ask(warm, history.before(run.text))
            warm.told = max(warm.told, up_to)

    def is_warm(self, thread: ThreadId) -> bool:
        """Whether a thread has a session that is ready."""
        return any(warm.key.thread == thread and warm.is_open for warm in self.pool.sessions)

    async def cancel(self, standing: Standing, thread: ThreadId, turn: TurnId | None = None) -> list[TurnId]:
        """Stop a turn of a thread, or all that have not ended; returns which were."""
        await self.find_thread(standing, thread)
        runs = [run for run in self.runs_of(thread) if turn is None or run.info.turn == turn]
        if turn is not None and not runs:
            raise NotFound("No such turn is running in this thread.", turn=turn[:64])
        for run in runs:
            run.stop("cancelled", "somebody asked for it")
        return [run.info.turn for run in runs]

    async def prewarm(self, standing: Standing, thread: ThreadId, options: InvokeOptions | None = None) -> Warm:
        """Have the session of a thread ready before its next message comes; returns once it is."""
        options = options or InvokeOptions()
        _check_thread(thread, options)
        found = await self.find_thread(standing, thread)
        wanted = self.crew.session_for(standing, options, found)
        return await self.pool.prewarm(wanted.key, wanted.opener)

    async def _live(self, run: TurnRun, line: Line, place: Place) -> None:
        timer = asyncio.get_running_loop().call_later(run.timeout_s, run.stop, "timeout", "it took too long")
        try:
            async with anyio.create_task_group() as beside:
                beside.start_soon(run.watch, self.limits.cancel_s)
                with run.stoppable():
                    await place.wait()
                await self._live_in_order(run)
                beside.cancel_scope.cancel()
        finally:
            timer.cancel()
            self._leave(run.info.thread, line, place)
            self._runs.pop(run.info.turn, None)
            run.done.set()
            run.is_over.set()

    async def _live_in_order(self, run: TurnRun) -> None:
        raised: Exception | None = None
        seq: int | None = None
        try:
            with anyio.CancelScope(shield=True):
                seq = await self._keeping.begin(run)
                begun = seq
            async with self._keeping.beating(run):
                with run.stoppable():
                    await self._answered(run, begun)
        except Exception as error:  # noqa: BLE001 (whatever happens, a turn has one end)
            raised = _first(error)
        except BaseException:
            run.stop("closing", "the server is shutting down")
            with anyio.move_on_after(CLOSE_S, shield=True):
                await self._end(run, seq, None)
            raise
        await self._end(run, seq, raised)

    async def _answered(self, run: TurnRun, seq: int) -> None:
        """Find the answer: a plugin's, else the agent's."""
        hooks, info = self.hooks, run.info
        await hooks.notify("toolpost_on_message", turn=info, text=run.text)
        if (reply := await hooks.first("toolpost_classify", turn=info, text=run.text)) is not None:
            run.say(reply)
            run.details = {"by": "plugin"}
            run.heard_end.set()
        else:
            prompt = await hooks.chain("toolpost_before_invoke", "prompt", run.text, turn=info)
            await self._asked(run, prompt, seq)
        if run.stop_kind is None:
            await hooks.notify("toolpost_after_invoke", turn=info, answer=run.answer)

    async def _asked(self, run: TurnRun, prompt: str, seq: int) -> None:
        """Ask the agent; a warm session that turns out to have closed under us is replaced, once."""
        thread = run.thread
        assert thread is not None
        options = InvokeOptions(agent=run.info.agent, model=run.info.model)
        wanted = self.crew.session_for(run.standing, options, thread)
        self.pool.evict_thread(thread.id, but=wanted.key)
        await self._retried(run, wanted, lambda: self._asked_once(run, wanted, prompt, seq))

    async def _retried(self, run: TurnRun, wanted: Wanted, ask: Callable[[], Awaitable[None]]) -> None:
        was_warm = self.pool.find(wanted.key) is not None
        try:
            await ask()
        except AgentGone as gone:
            if run.heard or not was_warm or run.stop_kind is not None:
                raise
            event(_log, logging.INFO, "session had closed; another one is opened", **run.ids, reason=gone.message)
            await ask()

    async def _asked_once(self, run: TurnRun, wanted: Wanted, prompt: str, seq: int) -> None:
        is_warm = self.pool.find(wanted.key) is not None
        async with self.pool.lease(wanted.key, wanted.opener) as warm:
            history = await self._history(run, told=warm.told, up_to=seq - 1)
            run.tell(Warmth(is_warm=is_warm, told=len(history.messages)))
            await run.ask(warm, history.before(prompt))

    async def _history(self, run: TurnRun, *, told: int, up_to: int) -> History:
        return await history_of(
            self.threads,
            run.info.thread,
            told=told,
            up_to=up_to,
            limits=self.limits.history,
            summarise=lambda older: self.hooks.first("toolpost_summarise", turn=run.info, messages=older),
        )

    async def _end(self, run: TurnRun, seq: int | None, raised: Exception | None) -> None:
        state, error = run.outcome(raised)
        answer = run.answer
        info = run.info
        details: JsonObject = dict(run.details) | ({"state": state} if state != "done" else {})
        if tools := run.tools:
            details["tools"] = tools
        is_kept = bool(answer or tools) or state == "done"
        at = time.time()
        ending = Ending(
            turn=info.turn,
            state=state,
            text=answer if is_kept else None,
            at_utc=at,
            error=error,
            details=details or None,
        )
        number: int | None = None
        if seq is not None:
            number = await self._keeping.end(run, ending, seq)
        run.ended = _ended(run, state, error, number)
        level = logging.WARNING if state == "failed" else logging.INFO
        event(_log, level, "turn ended", **run.ids, state=state, code=error["code"] if error else None)
        run.tell(run.ended)
        run.done.set()
        await self.hooks.notify("toolpost_on_complete", turn=info, ended=run.ended)

    def _run_of(self, standing: Standing, thread: Thread, text: str, options: InvokeOptions) -> TurnRun:
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
            await anyio.sleep(runner.STALE_S)
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


def _ended(run: TurnRun, state: TurnState, error: JsonObject | None, seq: int | None) -> TurnEnded:
    return TurnEnded(
        turn=run.info.turn,
        thread=run.info.thread,
        trace_id=run.info.trace_id,
        state=state,
        text=run.answer,
        seq=seq,
        reason=run.end.reason if run.end is not None else None,
        error=error,
        usage=run.end.usage if run.end is not None else None,
    )


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
