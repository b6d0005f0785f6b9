"""Conversations with agents: the interface that plugins, the HTTP API and the chat use.

The service checks that a thread is its caller's, and leaves the rest to its parts: `KeyedQueues` (order of messages in a thread),
`TurnRunner` (a turn from message to end), `TurnRecorder` (what is stored of it), `SessionPool` (open sessions of agents),
`LiveTurns` (turns of this process and their listeners), `OtherProcesses` (turns of other processes on the same store).

For example, `start_message` (which `handle_message` calls, to wait for the end) takes a place in the thread's queue, looks the
thread up, and starts a task in which `TurnRunner` waits for the place, stores the message, runs the hooks, prompts the agent in a
pooled session, and stores the answer.
"""

import logging
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskGroup

from toolpost import NotFound, Principal
from toolpost.base import ThreadId, TraceId, event, new_trace_id
from toolpost.contracts import CallCancelled, GatewayError, InvalidRequest
from toolpost.fairness import Callers, over_limit
from toolpost.gateway import Answer
from toolpost.parts import AgentCallObserver
from toolpost.parts.agents.agent import AgentSpec
from toolpost.parts.agents.agents import AgentRegistry
from toolpost.parts.agents.history import HistoryLimits
from toolpost.parts.agents.hooks import Hooks
from toolpost.parts.agents.ids import TurnId, new_thread_id, new_turn_id
from toolpost.parts.agents.live_turns import CLOSE_S, LiveTurns
from toolpost.parts.agents.other_processes import CANCEL_REASON, OtherProcesses
from toolpost.parts.agents.prompt import Prompter
from toolpost.parts.agents.queue import KeyedQueues
from toolpost.parts.agents.recorder import STALE_S, TITLE_LIMIT, TurnRecorder
from toolpost.parts.agents.session_pool import AgentMetrics, PooledSession, PoolLimits, SessionPool
from toolpost.parts.agents.threads import Thread, ThreadMessage, Threads, Turn
from toolpost.parts.agents.turn import LiveTurn
from toolpost.parts.agents.turn_events import TurnEnded
from toolpost.parts.agents.turn_runner import TurnRunner
from toolpost.parts.agents.values import InvokeOptions, Listener, ToolCall, TurnInfo
from toolpost.store import KeyValueStore, Wakeups

_log = logging.getLogger("toolpost.parts.agents")

MESSAGE_LIMIT: Final = 256 * 1024
FULL_RETRY_S: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class ConversationLimits:
    """Limits of conversations."""

    pool: PoolLimits = field(default_factory=PoolLimits)
    history: HistoryLimits = field(default_factory=HistoryLimits)
    waiting: int = 20
    """Messages that may wait in one thread."""
    cancel_s: float = 2.0
    """How long an agent may take to stop when it is told to; after that its session is closed."""
    beat_s: float = 5.0
    threads: int = 100_000
    """Threads that are stored, of all callers together."""


class Conversations(AgentCallObserver):
    """All conversations of one server.

    A `Principal` says in the name of which caller a method acts, and within which limits. Threads of other callers do not
    exist for it: methods that take a thread raise `NotFound` for them.
    """

    def __init__(
        self,
        threads: Threads,
        agents: AgentRegistry,
        hooks: Hooks,
        *,
        limits: ConversationLimits | None = None,
        metrics: AgentMetrics | None = None,
        key_values: KeyValueStore,
        wakeups: Wakeups,
        callers: Callers | None = None,
    ) -> None:
        self.limits = limits or ConversationLimits()
        self.agents = agents
        self.hooks = hooks
        self.key_values = key_values
        """Where a plugin keeps values of each caller that survive a restart of the server."""
        self._threads = threads
        self._callers = callers or Callers()
        self.pool = SessionPool(self.limits.pool, metrics or AgentMetrics(), self._callers)
        self.running = LiveTurns()
        self.queues: KeyedQueues[ThreadId] = KeyedQueues(self.limits.waiting)
        self._recorder = TurnRecorder(threads, beat_s=self.limits.beat_s)
        self._others = OtherProcesses(threads, wakeups, self._recorder.process)
        prompter = Prompter(self.pool, agents, threads, hooks, self.limits.history)
        self._runner = TurnRunner(prompter, self._recorder, hooks, self.running, cancel_s=self.limits.cancel_s)
        self._tasks: TaskGroup | None = None
        """Where turns run; None before the service is open, and once it is closing."""

    @asynccontextmanager
    async def open_running(self) -> AsyncIterator[None]:
        """Accept messages until the block is left; then stop all turns and close all sessions."""
        await self._recorder.interrupt_orphans(self.running.by_id)
        async with self.pool.open_running(), anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._interrupt_orphans)
            tasks.start_soon(self._others.listen, self.running.by_id)
            try:
                yield
            finally:
                self._tasks = None
                await self.running.stop_all()
                tasks.cancel_scope.cancel()

    @property
    def default_agent(self) -> str | None:
        """The agent that answers where none is named; None if no agent is configured."""
        return self.agents.default

    def list_agents(self) -> list[AgentSpec]:
        """Return the agents as configured."""
        return [ready.spec for ready in self.agents.agents.values()]

    # -- threads -----------------------------------------------------------------------------------------------------------

    async def create_thread(
        self, principal: Principal, *, title: str = "", agent: str | None = None, model: str | None = None
    ) -> Thread:
        """Start a conversation; a title is cut to `TITLE_LIMIT`. Raises `QueueOverloaded` over the limit of threads."""
        if agent is not None:
            self.agents.find(agent)
        now = time.time()
        thread = Thread(
            id=new_thread_id(),
            caller=principal.caller.id,
            title=title[:TITLE_LIMIT],
            agent=agent,
            model=model,
            created_at=now,
            changed_at=now,
        )
        limit = self.limits.threads
        own = await self._threads.create(thread, share=self._callers.share_of(limit), total=limit)
        if own is not None:
            hint = "delete conversations that are no longer needed"
            raise over_limit("conversations", own, limit, self._callers, retry_s=FULL_RETRY_S, hint=hint)
        return thread

    async def find_thread(self, principal: Principal, thread: ThreadId) -> Thread:
        """Return a thread of this caller; raises `NotFound` for a thread of another caller, too."""
        found = await self._threads.find(thread)
        if found is None or found.caller != principal.caller.id:
            raise NotFound(f"There is no thread `{thread[:64]}`.", thread=thread[:64])
        return found

    async def list_threads(self, principal: Principal, *, before: float | None = None, limit: int = 50) -> list[Thread]:
        """Return this caller's threads that changed before a time, the latest first."""
        return await self._threads.page(principal.caller.id, before=before, limit=limit)

    async def change_thread(
        self, principal: Principal, thread: ThreadId, *, title: str | None, agent: str | None, model: str | None
    ) -> Thread:
        """Change the title, agent or model of a thread; None leaves it, an empty agent or model unsets it.

        Another agent does not inherit the model of the previous agent.
        """
        found = await self.find_thread(principal, thread)
        if agent:
            self.agents.find(agent)
        if model is None and agent not in (None, found.agent):
            model = ""
        await self._threads.set(thread, title=None if title is None else title[:TITLE_LIMIT], agent=agent, model=model)
        return await self.find_thread(principal, thread)

    async def delete_thread(self, principal: Principal, thread: ThreadId) -> None:
        """Delete a thread with its messages; turns that run in it are stopped first, in other processes too."""
        await self.find_thread(principal, thread)
        # A turn that ended after its thread was deleted would have nowhere to record its answer.
        for run in self.running.list_in(thread):
            run.stop("cancelled", "the thread was deleted")
            await run.done.wait()
        await self._others.stop_and_wait(thread, within_s=self.limits.cancel_s + CLOSE_S)
        self.pool.evict_thread(thread)
        await self._threads.delete(thread)

    async def read_messages(
        self, principal: Principal, thread: ThreadId, *, after: int = 0, limit: int = 100
    ) -> list[ThreadMessage]:
        """Return the first messages of a thread past a `seq`, in order."""
        await self.find_thread(principal, thread)
        return await self._threads.messages(thread, after=after, limit=limit)

    async def list_turns(self, principal: Principal, thread: ThreadId, *, limit: int = 50) -> list[Turn]:
        """Return the turns of a thread, the latest first."""
        await self.find_thread(principal, thread)
        return await self._threads.turns(thread, limit=limit)

    # -- turns -------------------------------------------------------------------------------------------------------------

    async def handle_message(
        self, principal: Principal, thread: ThreadId, text: str, options: InvokeOptions | None = None
    ) -> TurnEnded:
        """Answer a message, and return how its turn ended; cancelling this cancels the turn."""
        run = await self.start_message(principal, thread, text, options)
        try:
            await run.done.wait()
        except BaseException:
            run.stop("cancelled", "the caller is gone")
            raise
        assert run.ended is not None
        return run.ended

    async def start_message(
        self, principal: Principal, thread: ThreadId, text: str, options: InvokeOptions | None = None
    ) -> LiveTurn:
        """Accept a message and return its turn, which runs on in the background. Raises at once if the message is refused."""
        options = options or InvokeOptions()
        _check_text(text)
        _check_thread(thread, options)
        # The place is taken before anything is waited for: the order of messages is the order of these calls.
        place = self.queues.join(thread)
        try:
            found = await self.find_thread(principal, thread)
            run = self._make_run(principal, found, text, options)
            if self._tasks is None:
                raise CallCancelled("The server is shutting down.")
        except BaseException:
            place.leave()
            raise
        self.running.add(run)
        # Another process may be asked to stop it: listen for that from now on.
        self._others.note_turn()
        self._tasks.start_soon(self._runner.run_queued, run, place)
        return run

    def _make_run(self, principal: Principal, thread: Thread, text: str, options: InvokeOptions) -> LiveTurn:
        name = self.agents.name_for(options, thread)
        # Where a plugin may answer, a server without agents accepts messages, too.
        spec = self.agents.find(name).spec if name or not self.hooks.has("toolpost_classify") else None
        info = TurnInfo(
            thread=thread.id,
            turn=new_turn_id(),
            trace_id=new_trace_id(),
            caller=principal.caller,
            agent=name,
            model=self.agents.model_for(options, thread) or (spec.model if spec else None),
        )
        timeout_s = options.timeout_s or (spec.timeout_s if spec else 600.0)
        run = LiveTurn(info, principal, text, timeout_s=timeout_s)
        run.thread = thread
        run.listeners |= self.running.listeners_of(thread.id)
        if options.on_event is not None:
            run.listeners.add(options.on_event)
        return run

    async def invoke(self, principal: Principal, prompt: str, options: InvokeOptions | None = None) -> TurnEnded:
        """Prompt an agent and record nothing; no hook runs.

        It is prompted in the session of `options.thread`, else in `options.session`, else in the caller's own.
        """
        options = options or InvokeOptions()
        _check_text(prompt)
        thread = await self.find_thread(principal, options.thread) if options.thread is not None else None
        request = self.agents.request_session(principal, options, thread)
        spec = request.profile.spec
        info = TurnInfo(
            thread=thread.id if thread is not None else ThreadId(""),
            turn=new_turn_id(),
            trace_id=new_trace_id(),
            caller=principal.caller,
            agent=spec.name,
            model=request.profile.model,
        )
        run = LiveTurn(info, principal, prompt, timeout_s=options.timeout_s or spec.timeout_s)
        if options.on_event is not None:
            run.listeners.add(options.on_event)
        run.thread = thread
        if thread is not None:
            self.running.add(run)
        try:
            return await self._runner.run_unrecorded(run, request)
        finally:
            self.running.remove(run)

    async def cancel(self, principal: Principal, thread: ThreadId, turn: TurnId | None = None) -> list[TurnId]:
        """Stop a turn of a thread, or all that have not ended, whichever process runs them; return which are being stopped.

        Raises `NotFound` if a turn is named and does not run.
        """
        await self.find_thread(principal, thread)
        runs = [run for run in self.running.list_in(thread) if turn is None or run.info.turn == turn]
        for run in runs:
            run.stop("cancelled", CANCEL_REASON)
        stopped = [run.info.turn for run in runs]
        if turn is None or not stopped:
            stopped += await self._others.request_stop(thread, turn)
        if turn is not None and not stopped:
            raise NotFound("No such turn is running in this thread.", turn=turn[:64])
        return stopped

    @property
    def runs(self) -> list[LiveTurn]:
        """Every turn of this process that has not ended, in the order in which they came."""
        return list(self.running.by_id.values())

    def running_in(self, thread: ThreadId) -> list[TurnId]:
        """Return the turns that run or wait in a thread, in order."""
        return [run.info.turn for run in self.running.list_in(thread)]

    def open_listener(self, thread: ThreadId, listener: Listener) -> AbstractContextManager[None]:
        """Pass every event of a thread to a listener until the block is left; access is not checked."""
        return self.running.open_listener(thread, listener)

    # -- sessions ----------------------------------------------------------------------------------------------------------

    async def prewarm(
        self, principal: Principal, thread: ThreadId, options: InvokeOptions | None = None
    ) -> PooledSession:
        """Open the session that the next message of a thread will use; return once it is open."""
        options = options or InvokeOptions()
        _check_thread(thread, options)
        found = await self.find_thread(principal, thread)
        request = self.agents.request_session(principal, options, found)
        return await self.pool.prewarm(request.key, request.opener)

    def has_room_for(self, principal: Principal) -> bool:
        """Whether a conversation of this caller that has no session yet would get one now, without waiting for others."""
        return self.pool.has_room_for(principal.caller.id)

    def is_warm(self, thread: ThreadId) -> bool:
        """Whether a thread has a session that is open."""
        return any(session.key.thread == thread and session.is_open for session in self.pool.sessions)

    # -- calls of agents ---------------------------------------------------------------------------------------------------

    def acting_principal(self, thread: ThreadId) -> Principal | None:
        """Return the caller in whose name the agent of a thread acts, with its limits; None while no turn runs."""
        run = self.running.find_current(thread)
        return run.principal if run is not None else None

    def trace_of(self, thread: ThreadId) -> TraceId | None:
        """Return the trace of the turn that runs in a thread, None if none does; its agent's calls belong to it."""
        run = self.running.find_current(thread)
        return run.info.trace_id if run is not None else None

    def note_call(self, answer: Answer) -> None:
        """Run the hook `toolpost_on_tool_call` for a call of a conversation's agent, without waiting for it."""
        call = answer.call
        thread = call.caller.thread
        if thread is None or self._tasks is None or not self.hooks.has("toolpost_on_tool_call"):
            return
        run = self.running.find_current(thread)
        tool_call = ToolCall(
            thread=thread,
            turn=run.info.turn if run is not None else None,
            trace_id=call.trace_id,
            call_id=call.id,
            tool=call.tool.contract.name,
            arguments=call.arguments,
            code=answer.code,
            duration_ms=call.duration_ms,
        )
        self._tasks.start_soon(partial(self.hooks.notify, "toolpost_on_tool_call", call=tool_call))

    async def _interrupt_orphans(self) -> None:
        while True:
            await anyio.sleep(STALE_S)
            try:
                await self._recorder.interrupt_orphans(self.running.by_id)
            except GatewayError as error:
                event(_log, logging.WARNING, "turns of ended processes could not be read", reason=error.message)


def _check_text(text: str) -> None:
    if not text.strip():
        raise InvalidRequest("The message is empty.")
    if len(text) > MESSAGE_LIMIT:
        raise InvalidRequest(f"A message has at most {MESSAGE_LIMIT} characters.", hint="put the rest into a file")


def _check_thread(thread: ThreadId, options: InvokeOptions) -> None:
    if options.thread not in (None, thread):
        raise InvalidRequest("The options name another thread.", hint="leave `thread` out of the options")
