"""The state of one turn from acceptance to end: what the agent has sent, its listeners, and how it is stopped.

`stop` may come at any time and from anywhere. It sets `stopping`; the task in `open_watch` then asks the agent to cancel, and
after `cancel_s` cancels the scope of `make_stop_scope`, in which the turn waits or reads the agent's events. The first reason
to stop wins, and none counts after the agent has ended its answer.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Final, Literal

import anyio
import msgspec

from toolpost import Principal, ToolFailed, ToolpostError
from toolpost.base import JsonObject, event
from toolpost.contracts import CallCancelled, GatewayError, ToolTimedOut
from toolpost.parts.agents.agent import AgentSession, enforce_single_end
from toolpost.parts.agents.session_pool import PooledSession
from toolpost.parts.agents.threads import Thread
from toolpost.parts.agents.turn_events import (
    AgentEnd,
    TextChunk,
    ThoughtChunk,
    ToolUsed,
    TurnEnded,
    TurnEvent,
    TurnState,
)
from toolpost.parts.agents.values import Listener, TurnInfo

_log = logging.getLogger("toolpost.parts.agents")

StopKind = Literal["cancelled", "timeout", "closing"]

TOOLS_KEPT: Final = 50
TOOL_TEXT: Final = 2_000
"""Characters of a tool's arguments and of its result that are stored with the answer; the audit has the rest."""

TEXT_LIMIT: Final = 8 * 1024 * 1024
"""Characters of an answer; an agent that sends more is stopped."""

OUTPUT_LIMIT: Final = 64 * 1024 * 1024
"""Characters of all answers, thoughts and tool results in one turn."""


class LiveTurn:
    """A turn whose message was accepted; it runs on in the background."""

    def __init__(self, info: TurnInfo, principal: Principal, text: str, *, timeout_s: float) -> None:
        self.info = info
        self.principal = principal
        self.text = text
        self.timeout_s = timeout_s
        self.details: JsonObject = {}
        """Stored with the answer."""
        self.thread: Thread | None = None
        """Its thread, as it was when the turn was accepted; None if nothing is recorded and no thread was named."""
        self.listeners: set[Listener] = set()
        self.ended: TurnEnded | None = None
        """How the turn ended, as listeners are told; None until then."""
        self.done = anyio.Event()
        """Set together with `ended`: the caller has its answer."""
        self.hooks_done = anyio.Event()
        """Set after `done`, when the hooks of the end have run, too."""
        self.stopping = anyio.Event()
        self.stop_kind: StopKind | None = None
        self.stop_reason = ""
        self.pooled: PooledSession | None = None
        """The session in which the agent was prompted; None until then."""
        self.agent_end: AgentEnd | None = None
        """How the agent ended its answer; None until then, and for a turn that no agent answers."""
        self.events = 0
        """How many events the agent has sent; an agent that has sent any is not prompted again."""
        self.answer_complete = anyio.Event()
        """Set when the answer is complete, an agent's or a plugin's; nothing stops the turn after that."""
        self.is_quiet = True
        """False as soon as a listener is notified; the heartbeat sets it to True again."""
        self._session: AgentSession | None = None
        self._parts: list[str] = []
        self._size = 0
        self._output = 0
        self._tools: dict[str, ToolUsed] = {}
        self._scope: anyio.CancelScope | None = None
        self._late_stop: tuple[StopKind, str] | None = None
        """A stop that came after the agent had ended its answer."""

    @property
    def answer(self) -> str:
        """The text of the answer so far."""
        return "".join(self._parts)

    def stop(self, kind: StopKind, reason: str) -> None:
        """Stop the turn, wherever it is; does nothing if it is stopping already, or once the agent has ended its answer."""
        # An answer that is complete is not thrown away because a cancellation came a moment too late.
        if self.answer_complete.is_set():
            self._late_stop = self._late_stop or (kind, reason)
        elif self.stop_kind is None:
            self.stop_kind, self.stop_reason = kind, reason
            self.stopping.set()

    def make_stop_scope(self) -> anyio.CancelScope:
        """Return a scope that `stop` cancels; it replaces the previous scope."""
        self._scope = anyio.CancelScope()
        if self.stop_kind is not None:
            self._scope.cancel()
        return self._scope

    @asynccontextmanager
    async def open_watch(self, cancel_s: float) -> AsyncIterator[None]:
        """Act on `stop` and on the time limit until the block is left."""
        # The time limit stops the turn like a user does, so that the agent is asked to cancel first.
        timer = asyncio.get_running_loop().call_later(self.timeout_s, self.stop, "timeout", "it took too long")
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, cancel_s)
                yield
                tasks.cancel_scope.cancel()
        finally:
            timer.cancel()

    async def _watch(self, cancel_s: float) -> None:
        await self.stopping.wait()
        if self._session is not None:
            with anyio.move_on_after(cancel_s):
                try:
                    await self._session.cancel()
                except Exception as error:  # noqa: BLE001 (an agent may raise anything; its session is closed instead)
                    event(_log, logging.WARNING, "agent could not be cancelled", reason=str(error))
                await self.answer_complete.wait()
        if self._scope is not None and not self.answer_complete.is_set():
            self._scope.cancel()

    async def prompt(self, pooled: PooledSession, prompt: str) -> None:
        """Prompt the agent, and pass its events to the listeners until it ends its answer.

        Raises `AgentGone` if the session closes, `ToolFailed` if the agent sends more than is read.
        """
        self.pooled, self._session = pooled, pooled.session
        try:
            async with aclosing(enforce_single_end(pooled.session.prompt(prompt))) as stream:
                async for agent_event in stream:
                    self.events += 1
                    if isinstance(agent_event, AgentEnd):
                        self.agent_end = agent_event
                        self.answer_complete.set()
                    else:
                        self._add(agent_event)
        finally:
            self._session = None

    def reopen(self) -> None:
        """Let the agent go on after it has ended its answer; what it writes is added to it."""
        self.agent_end = None
        self.answer_complete = anyio.Event()
        if self._late_stop is not None:
            # It came too late for the answer that was complete, and in time for the rest.
            self.stop(*self._late_stop)
        elif self._parts:
            self._add(TextChunk(text="\n\n"))

    def _add(self, agent_event: TextChunk | ThoughtChunk | ToolUsed) -> None:
        size = len(agent_event.result or "") if isinstance(agent_event, ToolUsed) else len(agent_event.text)
        self._output += size
        if self._output > OUTPUT_LIMIT:
            raise _make_too_long("in one turn", OUTPUT_LIMIT)
        if isinstance(agent_event, TextChunk):
            self._size += size
            if self._size > TEXT_LIMIT:
                raise _make_too_long("in one answer", TEXT_LIMIT)
            self._parts.append(agent_event.text)
        elif isinstance(agent_event, ToolUsed) and (agent_event.id in self._tools or len(self._tools) < TOOLS_KEPT):
            self._tools[agent_event.id] = _merge_events(self._tools.get(agent_event.id), agent_event)
        self.notify(agent_event)

    @property
    def tools(self) -> list[JsonObject]:
        """The tools that the agent has used, in order, as they are stored with the answer."""
        return [_encode_tool(used) for used in self._tools.values()]

    def set_answer(self, text: str) -> None:
        """Take a whole answer at once, from a plugin."""
        self._parts = [text]
        self.notify(TextChunk(text=text))

    def notify(self, turn_event: TurnEvent) -> None:
        """Pass an event to every listener; one that raises is removed."""
        self.is_quiet = False
        # A copy: a listener may remove itself while it is called.
        for listener in tuple(self.listeners):
            try:
                listener(turn_event)
            except Exception as error:  # noqa: BLE001 (a listener may raise anything)
                self.listeners.discard(listener)
                event(_log, logging.ERROR, "listener failed", turn=self.info.turn, exception=error)

    def find_state(self, raised: Exception | None) -> tuple[TurnState, JsonObject | None]:
        """Return the state in which the turn ended and, if it did not succeed, the error object."""
        # A stop that came before the end of the answer explains what was raised: the cancelled scope, a closed session.
        if self.stop_kind is not None and (raised is None or not self.answer_complete.is_set()):
            return self._stop_outcome()
        if raised is None:
            return "done", None
        error = raised if isinstance(raised, ToolpostError) else GatewayError(cause=raised)
        if isinstance(error, GatewayError):
            # The client gets no details of an internal error, only where to find them.
            event(_log, logging.ERROR, "turn failed", **self.ids, reason=error.message, exception=raised)
            error = GatewayError(hint=f"the server's log has more under trace id {self.info.trace_id}")
        return "failed", error.as_object()

    @property
    def ids(self) -> JsonObject:
        """Fields that identify the turn in the log."""
        return {"thread": self.info.thread, "turn": self.info.turn, "trace": self.info.trace_id}

    def _stop_outcome(self) -> tuple[TurnState, JsonObject]:
        if self.stop_kind == "timeout":
            if self.pooled is None:
                message = f"No agent could be prompted within {self.timeout_s:g} s."
                hint = "it waited for earlier messages, for a free session (agents.sessions) or for the agent to start"
            else:
                message = f"The agent did not end its answer within {self.timeout_s:g} s."
                hint = "ask for less at once, or raise the agent's timeout_s"
            timeout = ToolTimedOut(message, timeout_ms=round(self.timeout_s * 1000), hint=hint)
            return "failed", timeout.as_object()
        cancelled = CallCancelled(f"The turn was cancelled: {self.stop_reason}.")
        return "interrupted" if self.stop_kind == "closing" else "cancelled", cancelled.as_object()


def _make_too_long(where: str, limit: int) -> ToolFailed:
    return ToolFailed(
        f"The agent wrote more than {limit:,} characters {where}, the limit.",
        hint="ask for less at once, or have it write to a file",
    )


def _merge_events(known: ToolUsed | None, later: ToolUsed) -> ToolUsed:
    """Merge two events of one tool call; fields that the later one omits stay."""
    if known is None:
        return later
    return ToolUsed(
        id=later.id,
        tool=later.tool or known.tool,
        state=later.state,
        arguments=known.arguments if later.arguments is None else later.arguments,
        result=known.result if later.result is None else later.result,
    )


def _encode_tool(used: ToolUsed) -> JsonObject:
    encoded: JsonObject = {"tool": used.tool, "state": used.state}
    if used.arguments is not None:
        text = msgspec.json.encode(used.arguments).decode()
        encoded["arguments"] = used.arguments if len(text) <= TOOL_TEXT else f"{text[:TOOL_TEXT]}…"
    if used.result is not None:
        encoded["result"] = used.result if len(used.result) <= TOOL_TEXT else f"{used.result[:TOOL_TEXT]}…"
    return encoded
