"""What is kept of turns while they run, and what becomes of those whose process was killed."""

import logging
import time
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager

import anyio

from toolpost.base.clocks import steady_s
from toolpost.base.events import event
from toolpost.base.ids import TurnId
from toolpost.base.turns import Heartbeat, TurnStarted
from toolpost.contracts.errors import CallCancelled, GatewayError, NotFound
from toolpost.parts.conversations import process_id
from toolpost.parts.conversations.caller_threads import TITLE_LIMIT
from toolpost.parts.conversations.turn import TurnRun
from toolpost.store.threads import Ending, Resumable, Threads, Turn

_log = logging.getLogger("toolpost.parts.conversations")


class Keeping:
    """Keeps turns: their beginning, what has come so far, their end."""

    def __init__(self, threads: Threads, *, beat_s: float) -> None:
        self._threads = threads
        self._beat_s = beat_s
        self.name = process_id.own_name()
        self._heard: dict[TurnId, tuple[float, float]] = {}
        """The last sign of life of each turn that runs, and since when it is the last, by the steady clock."""

    async def mend(self, running: Container[TurnId]) -> None:
        """Mark turns whose process was killed as interrupted, with as much of the answer as was kept."""
        now_s, before = steady_s(), self._heard
        turns = await self._threads.running()
        self._heard = {
            turn.id: before[turn.id] if before.get(turn.id, (None,))[0] == turn.alive_at else (turn.alive_at, now_s)
            for turn in turns
        }
        for turn in turns:
            silent_s = now_s - self._heard[turn.id][1]
            if turn.id not in running and turn.runner != self.name and process_id.has_ended(turn, silent_s=silent_s):
                await self._threads.end(_interrupted(turn))
                event(
                    _log, logging.WARNING, "turn was interrupted", thread=turn.thread, turn=turn.id, trace=turn.trace_id
                )

    async def begin(self, run: TurnRun) -> int:
        """Keep a message and the turn that it begins; returns its number."""
        now = time.time()
        info = run.info
        turn = Turn(
            id=info.turn,
            thread=info.thread,
            state="running",
            trace_id=info.trace_id,
            runner=self.name,
            started_at=now,
            alive_at=now,
        )
        # A thread that has no title gets the beginning of what is said in it.
        title = " ".join(run.text.split())[:TITLE_LIMIT]
        seq = await self._threads.begin(turn, run.text, run.details or None, title=title)
        if seq is None:
            raise NotFound(f"There is no thread `{info.thread}` any more.", thread=info.thread)
        run.tell(TurnStarted(turn=info.turn, thread=info.thread, trace_id=info.trace_id, seq=seq))
        return seq

    async def end(self, run: TurnRun, ending: Ending, seq: int) -> int | None:
        """Keep how a turn ended; returns the number of its answer, if there is one."""
        warm = run.warm
        resumable = None
        if warm is not None and warm.is_open and warm.session.id is not None:
            resumable = Resumable(session=warm.session.id, profile=warm.key.profile)
        try:
            with anyio.CancelScope(shield=True):
                number = await self._threads.end(ending, resumable=resumable)
        except GatewayError as error:
            event(_log, logging.ERROR, "the end of a turn could not be kept", **run.ids, reason=error.message)
            return None
        if warm is not None and warm.is_open:
            # It was asked and has answered: it knows of both.
            warm.told = number if number is not None else seq
        return number

    @asynccontextmanager
    async def beating(self, run: TurnRun) -> AsyncIterator[None]:
        """Keep what has come so far now and then, and show that somebody is at it."""

        async def beat() -> None:
            while True:
                run.is_quiet = True
                await anyio.sleep(self._beat_s)
                if run.is_quiet:
                    run.tell(Heartbeat())
                try:
                    await self._threads.note(run.info.turn, partial=run.answer, at_utc=time.time())
                except GatewayError as error:
                    event(_log, logging.WARNING, "a turn could not be noted", **run.ids, reason=error.message)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beat)
            yield
            tasks.cancel_scope.cancel()


def _interrupted(turn: Turn) -> Ending:
    error = CallCancelled("The server ended in the middle of this turn.", hint="send the message again")
    return Ending(
        turn=turn.id,
        state="interrupted",
        text=turn.partial or None,
        at_utc=time.time(),
        error=error.as_object(),
        details={"state": "interrupted"} if turn.partial else None,
    )
