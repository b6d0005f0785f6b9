"""Runs a turn: waits for its place in the thread, records the message, runs hooks, asks a plugin or an agent, records the end.

Whatever happens, a turn has exactly one end: `run_queued` and `run_unrecorded` never raise what a hook or an agent raised, and
the end is recorded even if the shutdown of the server cancels the turn.
"""

import logging
import time
from functools import partial

import anyio

from toolpost import ToolFailed
from toolpost.base import JsonObject, ThreadId, event
from toolpost.parts.agents.agent import unwrap_group
from toolpost.parts.agents.agents import PooledSessionRequest
from toolpost.parts.agents.hooks import Hooks
from toolpost.parts.agents.live_turns import CLOSE_S, LiveTurns
from toolpost.parts.agents.prompt import Prompter
from toolpost.parts.agents.queue import QueuePlace
from toolpost.parts.agents.recorder import TurnRecorder
from toolpost.parts.agents.threads import TurnEndRecord
from toolpost.parts.agents.turn import LiveTurn
from toolpost.parts.agents.turn_events import TurnEnded, TurnState

_log = logging.getLogger("toolpost.parts.agents")


class TurnRunner:
    """Runs turns from their acceptance to their end."""

    def __init__(
        self, prompter: Prompter, recorder: TurnRecorder, hooks: Hooks, running: LiveTurns, *, cancel_s: float
    ) -> None:
        """`cancel_s` is how long an agent may take to stop when it is told to."""
        self._prompter = prompter
        self._recorder = recorder
        self._hooks = hooks
        self._running = running
        self._cancel_s = cancel_s

    async def run_queued(self, run: LiveTurn, place: QueuePlace[ThreadId]) -> None:
        """Wait until the message is the first in the queue of its thread, run its turn, and leave the queue."""
        try:
            async with run.open_watch(self._cancel_s):
                with run.make_stop_scope():
                    await place.is_first.wait()
                await self._run(run)
        finally:
            place.leave()
            self._running.remove(run)

    async def run_unrecorded(self, run: LiveTurn, request: PooledSessionRequest) -> TurnEnded:
        """Ask an agent without recording anything; no hook is called."""
        raised: Exception | None = None
        try:
            async with run.open_watch(self._cancel_s):
                with run.make_stop_scope():
                    await self._prompter.prompt_unrecorded(run, request)
        except Exception as error:  # noqa: BLE001 (whatever happens, there is one end)
            raised = unwrap_group(error)
        ended = _make_end_event(run, *run.find_state(raised), None)
        run.notify(ended)
        return ended

    async def _run(self, run: LiveTurn) -> None:
        raised: Exception | None = None
        seq: int | None = None
        try:
            # A message that is half recorded would be a turn without an end: neither `stop` nor shutdown cuts this off.
            with anyio.CancelScope(shield=True):
                seq = await self._recorder.record_start(run)
                message_seq = seq  # narrowed to int
            async with self._recorder.open_heartbeat(run):
                with run.make_stop_scope():
                    await self._answer(run, message_seq)
        except Exception as error:  # noqa: BLE001 (whatever happens, a turn has one end)
            raised = unwrap_group(error)
        except BaseException:
            run.stop("closing", "the server is shutting down")
            with anyio.move_on_after(CLOSE_S, shield=True):
                await self._end(run, seq, None)
            raise
        await self._end(run, seq, raised)

    async def _answer(self, run: LiveTurn, seq: int) -> None:
        """Take the answer of the first plugin that has one, else the agent's."""
        hooks, info = self._hooks, run.info
        await hooks.notify("toolpost_on_message", turn=info, text=run.text)
        if (reply := await hooks.first("toolpost_classify", turn=info, text=run.text)) is not None:
            run.set_answer(reply)
            run.details = {"by": "plugin"}
            run.answer_complete.set()
        else:
            prompt = await hooks.chain("toolpost_before_invoke", "prompt", run.text, turn=info)
            await self._prompter.prompt(run, prompt, seq, partial(self._find_missing, run))
            if run.stop_kind is None and (missing := await self._find_missing(run)) is not None:
                raise ToolFailed(
                    f"The agent ended its turn before it was complete: {missing}",
                    hint="it was asked for it once more; send another message to ask again",
                )
        if run.stop_kind is None:
            await hooks.notify("toolpost_after_invoke", turn=info, answer=run.answer)

    async def _find_missing(self, run: LiveTurn) -> str | None:
        return await self._hooks.require("toolpost_check_answer", turn=run.info, answer=run.answer)

    async def _end(self, run: LiveTurn, seq: int | None, raised: Exception | None) -> None:
        state, error = run.find_state(raised)
        number = (
            await self._recorder.record_end(run, _make_end_record(run, state, error), seq) if seq is not None else None
        )
        run.ended = _make_end_event(run, state, error, number)
        level = logging.WARNING if state == "failed" else logging.INFO
        event(_log, level, "turn ended", **run.ids, state=state, code=error["code"] if error else None)
        run.notify(run.ended)
        # The caller has its answer before the hooks of the end run: a slow hook delays only the next message.
        run.done.set()
        await self._hooks.notify("toolpost_on_complete", turn=run.info, ended=run.ended)


def _make_end_record(run: LiveTurn, state: TurnState, error: JsonObject | None) -> TurnEndRecord:
    """Make the record of an end: with an answer if there is one, or if the turn succeeded with an empty one."""
    answer, tools = run.answer, run.tools
    details: JsonObject = dict(run.details) | ({"state": state} if state != "done" else {})
    if tools:
        details["tools"] = tools
    is_kept = bool(answer or tools) or state == "done"
    return TurnEndRecord(
        turn=run.info.turn,
        state=state,
        text=answer if is_kept else None,
        at_utc=time.time(),
        error=error,
        details=details or None,
    )


def _make_end_event(run: LiveTurn, state: TurnState, error: JsonObject | None, seq: int | None) -> TurnEnded:
    return TurnEnded(
        turn=run.info.turn,
        thread=run.info.thread,
        trace_id=run.info.trace_id,
        state=state,
        text=run.answer,
        seq=seq,
        reason=run.agent_end.reason if run.agent_end is not None else None,
        error=error,
        usage=run.agent_end.usage if run.agent_end is not None else None,
    )
