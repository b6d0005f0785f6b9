"""One turn on its way: what it has heard so far, who listens, and how it is told to stop."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Final, Literal

import anyio
import msgspec

from toolpost.authoring.conversation import Listener, TurnInfo
from toolpost.base.caller import Principal
from toolpost.base.events import event
from toolpost.base.ids import JsonObject
from toolpost.base.turns import AgentEnd, AgentEvent, TextChunk, ToolUsed, TurnEnded, TurnEvent, TurnState
from toolpost.contracts.errors import CallCancelled, GatewayError, ToolFailed, ToolpostError, ToolTimedOut
from toolpost.parts.conversations.agent import AgentSession, one_end
from toolpost.parts.conversations.session_pool import Warm
from toolpost.store.threads import Thread

_log = logging.getLogger("toolpost.parts.conversations")

StopKind = Literal["cancelled", "timeout", "closing"]

TOOLS_KEPT: Final = 50
TOOL_TEXT: Final = 2_000
"""How much of what a tool was given and gave is kept with the answer, in characters; the audit has the rest."""

TEXT_LIMIT: Final = 8 * 1024 * 1024
"""Characters of an answer; an agent that says more is stopped."""

OUTPUT_LIMIT: Final = 64 * 1024 * 1024
"""Characters of all that an agent says, thinks and is told by tools in one turn."""


class TurnRun:
    """A turn, from when it was accepted until it has ended."""

    def __init__(
        self, info: TurnInfo, standing: Principal, text: str, *, timeout_s: float, details: JsonObject
    ) -> None:
        self.info = info
        self.standing = standing
        self.text = text
        self.timeout_s = timeout_s
        self.details = details
        self.thread: Thread | None = None
        """Its thread, as it was when the turn was accepted."""
        self.listeners: set[Listener] = set()
        self.done = anyio.Event()
        self.is_over = anyio.Event()
        """Set once plugins have been told of its end, too."""
        self.ended: TurnEnded | None = None
        self.stopping = anyio.Event()
        self.stop_kind: StopKind | None = None
        self.stop_reason = ""
        self.warm: Warm | None = None
        self.end: AgentEnd | None = None
        self.heard = 0
        """How many events have come from the agent."""
        self.heard_end = anyio.Event()
        self.is_quiet = True
        """Whether nothing has come since somebody last looked."""
        self._session: AgentSession | None = None
        self._parts: list[str] = []
        self._size = 0
        self._output = 0
        self._tools: dict[str, ToolUsed] = {}
        self._scope: anyio.CancelScope | None = None

    @property
    def answer(self) -> str:
        """What the agent has said so far."""
        return "".join(self._parts)

    def stop(self, kind: StopKind, reason: str) -> None:
        """Have the turn end, wherever it is; a second reason changes nothing, nor does any once the agent has ended it."""
        if self.stop_kind is None and not self.heard_end.is_set():
            self.stop_kind, self.stop_reason = kind, reason
            self.stopping.set()

    def stoppable(self) -> anyio.CancelScope:
        """Return a scope for what `stop` may cut off."""
        self._scope = anyio.CancelScope()
        if self.stop_kind is not None:
            self._scope.cancel()
        return self._scope

    @asynccontextmanager
    async def watched(self, cancel_s: float) -> AsyncIterator[None]:
        """Have the turn stopped at its time limit, and when it is told to, for as long as this lasts."""
        timer = asyncio.get_running_loop().call_later(self.timeout_s, self.stop, "timeout", "it took too long")
        try:
            async with anyio.create_task_group() as beside:
                beside.start_soon(self._watch, cancel_s)
                yield
                beside.cancel_scope.cancel()
        finally:
            timer.cancel()

    async def _watch(self, cancel_s: float) -> None:
        """Wait until the turn is to stop, and see to it: the agent is asked first, if it is at work."""
        await self.stopping.wait()
        if self._session is not None:
            with anyio.move_on_after(cancel_s):
                await _ask_to_stop(self._session)
                await self.heard_end.wait()
        if self._scope is not None and not self.heard_end.is_set():
            self._scope.cancel()

    async def ask(self, warm: Warm, prompt: str) -> AgentEnd:
        """Ask the agent, and pass on what it says, until the end."""
        self.warm, self._session = warm, warm.session
        try:
            async with aclosing(one_end(warm.session.prompt(prompt))) as stream:
                return await self._listen(stream)
        finally:
            self._session = None

    async def _listen(self, stream: AsyncGenerator[AgentEvent, None]) -> AgentEnd:
        async for heard in stream:
            self.heard += 1
            if isinstance(heard, AgentEnd):
                self.end = heard
                self.heard_end.set()
            else:
                self._take(heard)
        assert self.end is not None
        return self.end

    def _take(self, heard: AgentEvent) -> None:
        if isinstance(heard, AgentEnd):
            return
        size = len(heard.result or "") if isinstance(heard, ToolUsed) else len(heard.text)
        self._output += size
        if self._output > OUTPUT_LIMIT:
            raise _too_long("in one turn", OUTPUT_LIMIT)
        if isinstance(heard, TextChunk):
            self._size += size
            if self._size > TEXT_LIMIT:
                raise _too_long("in one answer", TEXT_LIMIT)
            self._parts.append(heard.text)
        elif isinstance(heard, ToolUsed) and (heard.id in self._tools or len(self._tools) < TOOLS_KEPT):
            self._tools[heard.id] = _together(self._tools.get(heard.id), heard)
        self.tell(heard)

    @property
    def tools(self) -> list[JsonObject]:
        """What the agent has used, in order, as it is kept with the answer."""
        return [_shortened(used) for used in self._tools.values()]

    def say(self, text: str) -> None:
        """Have a whole answer at once, from somebody who is not an agent."""
        self._parts = [text]
        self.tell(TextChunk(text=text))

    def tell(self, told: TurnEvent) -> None:
        """Tell whoever listens; one who fails at that listens no more."""
        self.is_quiet = False
        for listener in tuple(self.listeners):
            try:
                listener(told)
            except Exception as error:  # noqa: BLE001 (a listener may raise anything)
                self.listeners.discard(listener)
                event(_log, logging.ERROR, "listener failed", turn=self.info.turn, exception=error)

    def outcome(self, raised: Exception | None) -> tuple[TurnState, JsonObject | None]:
        """Say what became of the turn, and the error object if it is not what was wished for."""
        if self.stop_kind is not None and (raised is None or not self.heard_end.is_set()):
            return self._stopped()
        if raised is None:
            return "done", None
        error = raised if isinstance(raised, ToolpostError) else GatewayError(cause=raised)
        if isinstance(error, GatewayError):
            event(_log, logging.ERROR, "turn failed", **self.ids, reason=error.message, exception=raised)
            error = GatewayError(hint=f"the server's log has more under trace id {self.info.trace_id}")
        return "failed", error.as_object()

    @property
    def ids(self) -> JsonObject:
        """What leads back to the turn, for the log."""
        return {"thread": self.info.thread, "turn": self.info.turn, "trace": self.info.trace_id}

    def _stopped(self) -> tuple[TurnState, JsonObject]:
        if self.stop_kind == "timeout":
            return "failed", self._late().as_object()
        cancelled = CallCancelled(f"The turn was cancelled: {self.stop_reason}.")
        return "interrupted" if self.stop_kind == "closing" else "cancelled", cancelled.as_object()

    def _late(self) -> ToolTimedOut:
        if self.warm is None:
            what = f"No agent could be asked within {self.timeout_s:g} s."
            hint = (
                "it waited for what was said before it, for a free session (harness.sessions) or for the agent to start"
            )
        else:
            what = f"The agent did not end its answer within {self.timeout_s:g} s."
            hint = "ask for less at once, or raise the agent's timeout_s"
        return ToolTimedOut(what, timeout_ms=round(self.timeout_s * 1000), hint=hint)


def _too_long(where: str, limit: int) -> ToolFailed:
    return ToolFailed(
        f"The agent wrote more than {limit:,} characters {where}, the limit.",
        hint="ask for less at once, or have it write to a file",
    )


def _together(known: ToolUsed | None, more: ToolUsed) -> ToolUsed:
    """Put together what was told of a tool at several times."""
    if known is None:
        return more
    return ToolUsed(
        id=more.id,
        tool=more.tool or known.tool,
        state=more.state,
        arguments=known.arguments if more.arguments is None else more.arguments,
        result=known.result if more.result is None else more.result,
    )


def _shortened(used: ToolUsed) -> JsonObject:
    kept: JsonObject = {"tool": used.tool, "state": used.state}
    if used.arguments is not None:
        written = msgspec.json.encode(used.arguments).decode()
        kept["arguments"] = used.arguments if len(written) <= TOOL_TEXT else f"{written[:TOOL_TEXT]}…"
    if used.result is not None:
        kept["result"] = used.result if len(used.result) <= TOOL_TEXT else f"{used.result[:TOOL_TEXT]}…"
    return kept


async def _ask_to_stop(session: AgentSession) -> None:
    try:
        await session.cancel()
    except Exception as error:  # noqa: BLE001 (an agent that cannot even be asked is ended)
        event(_log, logging.WARNING, "agent could not be asked to stop", reason=str(error))
