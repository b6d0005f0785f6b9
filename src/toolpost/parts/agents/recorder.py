"""Records turns in the store: their start, the partial answer while they run, their end; ends those of killed processes."""

import logging
import socket
import time
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager
from typing import Final

import anyio

from toolpost import NotFound
from toolpost.base import event, steady_s
from toolpost.contracts import CallCancelled, GatewayError
from toolpost.parts.agents.ids import TurnId
from toolpost.parts.agents.threads import Resumable, Threads, Turn, TurnEndRecord
from toolpost.parts.agents.turn import LiveTurn
from toolpost.parts.agents.turn_events import Heartbeat, TurnStarted
from toolpost.processes import Daemon

_log = logging.getLogger("toolpost.parts.agents")

TITLE_LIMIT: Final = 80

STALE_S: Final = 60.0
"""A process of another machine counts as ended if its turns have not been updated for this long."""


def own_process_id() -> str:
    """Return an id of this process, `host/pid/start time`, which no later process gets again."""
    this = Daemon.current()
    return f"{socket.gethostname()}/{this.pid}/{this.born_at:.2f}"


def has_runner_ended(turn: Turn, *, silent_s: float) -> bool:
    """Whether the process that ran a turn has ended; `silent_s` is for how long its record has not changed."""
    rest, _, started = turn.runner.rpartition("/")
    host, _, pid = rest.rpartition("/")
    if host != socket.gethostname():
        # Not by the time in its record: the clocks of two machines may differ, and either may jump.
        return silent_s >= STALE_S
    runner = Daemon.find(int(pid)) if pid.isdecimal() else None
    return runner is None or f"{runner.born_at:.2f}" != started


class TurnRecorder:
    """Writes the turns of this process to the store."""

    def __init__(self, threads: Threads, *, beat_s: float) -> None:
        """`beat_s` is how often a running turn is written, in seconds."""
        self._threads = threads
        self._beat_s = beat_s
        self.process = own_process_id()
        self._last_seen: dict[TurnId, tuple[float, float]] = {}
        """For each running turn: its last `alive_at`, and since when it has not changed, by the steady clock."""

    async def interrupt_orphans(self, running: Container[TurnId]) -> None:
        """Mark turns of killed processes as interrupted; the partial answer becomes their answer."""
        now_s, before = steady_s(), self._last_seen
        turns = await self._threads.running()
        # `alive_at` is by the wall clock of another machine, so it is only compared with itself.
        self._last_seen = {
            turn.id: before[turn.id] if before.get(turn.id, (None,))[0] == turn.alive_at else (turn.alive_at, now_s)
            for turn in turns
        }
        for turn in turns:
            silent_s = now_s - self._last_seen[turn.id][1]
            if turn.id not in running and turn.runner != self.process and has_runner_ended(turn, silent_s=silent_s):
                await self._threads.end(_make_interrupted(turn))
                event(
                    _log, logging.WARNING, "turn was interrupted", thread=turn.thread, turn=turn.id, trace=turn.trace_id
                )

    async def record_start(self, run: LiveTurn) -> int:
        """Store a message and the turn that it starts; return the message's number. Raises `NotFound` without a thread."""
        now = time.time()
        info = run.info
        turn = Turn(
            id=info.turn,
            thread=info.thread,
            state="running",
            trace_id=info.trace_id,
            runner=self.process,
            started_at=now,
            alive_at=now,
        )
        # A thread without a title gets the beginning of its first message.
        title = " ".join(run.text.split())[:TITLE_LIMIT]
        seq = await self._threads.begin(turn, run.text, run.details or None, title=title)
        if seq is None:
            raise NotFound(f"The thread `{info.thread}` was deleted.", thread=info.thread)
        run.notify(TurnStarted(turn=info.turn, thread=info.thread, trace_id=info.trace_id, seq=seq))
        return seq

    async def record_end(self, run: LiveTurn, ending: TurnEndRecord, seq: int) -> int | None:
        """Store how a turn ended; return the number of its answer, None if it has none or the store failed."""
        pooled = run.pooled
        resumable = None
        if pooled is not None and pooled.is_open and pooled.session.id is not None:
            resumable = Resumable(session=pooled.session.id, profile=pooled.key.profile)
        try:
            # Shielded: a turn that is cancelled by the shutdown of the server has an end, too.
            with anyio.CancelScope(shield=True):
                number = await self._threads.end(ending, resumable=resumable)
        except GatewayError as error:
            event(_log, logging.ERROR, "the end of a turn could not be stored", **run.ids, reason=error.message)
            return None
        if pooled is not None and pooled.is_open:
            # The agent knows the prompt and its own answer.
            pooled.known_seq = number if number is not None else seq
        return number

    @asynccontextmanager
    async def open_heartbeat(self, run: LiveTurn) -> AsyncIterator[None]:
        """Store the partial answer every `beat_s`, and send listeners a `Heartbeat` when nothing else was sent since the last."""

        async def beat() -> None:
            while True:
                run.is_quiet = True
                await anyio.sleep(self._beat_s)
                if run.is_quiet:
                    run.notify(Heartbeat())
                try:
                    await self._threads.note(run.info.turn, partial=run.answer, at_utc=time.time())
                except GatewayError as error:
                    event(_log, logging.WARNING, "a running turn could not be updated", **run.ids, reason=error.message)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beat)
            yield
            tasks.cancel_scope.cancel()


def _make_interrupted(turn: Turn) -> TurnEndRecord:
    error = CallCancelled("The server ended in the middle of this turn.", hint="send the message again")
    return TurnEndRecord(
        turn=turn.id,
        state="interrupted",
        text=turn.partial or None,
        at_utc=time.time(),
        error=error.as_object(),
        details={"state": "interrupted"} if turn.partial else None,
    )
