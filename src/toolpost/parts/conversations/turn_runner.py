"""The way of a turn: its message is kept, hooks hear it, a plugin or an agent answers, its end is kept. It has one end."""

import logging
import time
from typing import Final

import anyio

from toolpost.base.events import event
from toolpost.base.ids import JsonObject
from toolpost.base.turns import TurnEnded, TurnState
from toolpost.parts.conversations.agents import Wanted
from toolpost.parts.conversations.hooks import Hooks
from toolpost.parts.conversations.prompt import Asking
from toolpost.parts.conversations.recorder import Keeping
from toolpost.parts.conversations.turn import TurnRun
from toolpost.store.threads import Ending

_log = logging.getLogger("toolpost.parts.conversations")

CLOSE_S: Final = 3.0
"""How long turns may take to stop when the server ends."""


class Way:
    """What each turn passes."""

    def __init__(self, asking: Asking, keeping: Keeping, hooks: Hooks, *, cancel_s: float) -> None:
        self._asking = asking
        self._keeping = keeping
        self._hooks = hooks
        self._cancel_s = cancel_s

    async def go(self, run: TurnRun) -> None:
        """Answer a message of a thread whose turn has come."""
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

    async def go_aside(self, run: TurnRun, wanted: Wanted) -> TurnEnded:
        """Answer what is kept nowhere; no hook hears of it."""
        raised: Exception | None = None
        try:
            async with run.watched(self._cancel_s):
                with run.stoppable():
                    await self._asking.ask_aside(run, wanted)
        except Exception as error:  # noqa: BLE001 (whatever happens, there is one end)
            raised = _first(error)
        ended = _ended(run, *run.outcome(raised), None)
        run.tell(ended)
        return ended

    async def _answered(self, run: TurnRun, seq: int) -> None:
        """Find the answer: a plugin's, else the agent's."""
        hooks, info = self._hooks, run.info
        await hooks.notify("toolpost_on_message", turn=info, text=run.text)
        if (reply := await hooks.first("toolpost_classify", turn=info, text=run.text)) is not None:
            run.say(reply)
            run.details = {"by": "plugin"}
            run.heard_end.set()
        else:
            prompt = await hooks.chain("toolpost_before_invoke", "prompt", run.text, turn=info)
            await self._asking.ask(run, prompt, seq)
        if run.stop_kind is None:
            await hooks.notify("toolpost_after_invoke", turn=info, answer=run.answer)

    async def _end(self, run: TurnRun, seq: int | None, raised: Exception | None) -> None:
        state, error = run.outcome(raised)
        number = await self._keeping.end(run, _ending(run, state, error), seq) if seq is not None else None
        run.ended = _ended(run, state, error, number)
        level = logging.WARNING if state == "failed" else logging.INFO
        event(_log, level, "turn ended", **run.ids, state=state, code=error["code"] if error else None)
        run.tell(run.ended)
        run.done.set()
        await self._hooks.notify("toolpost_on_complete", turn=run.info, ended=run.ended)


def _ending(run: TurnRun, state: TurnState, error: JsonObject | None) -> Ending:
    """Say what is kept of the end."""
    answer, tools = run.answer, run.tools
    details: JsonObject = dict(run.details) | ({"state": state} if state != "done" else {})
    if tools:
        details["tools"] = tools
    is_kept = bool(answer or tools) or state == "done"
    return Ending(
        turn=run.info.turn,
        state=state,
        text=answer if is_kept else None,
        at_utc=time.time(),
        error=error,
        details=details or None,
    )


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
