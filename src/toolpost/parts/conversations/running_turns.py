"""Turns that have not ended: which they are, who listens to them, and in whose name their agents act."""

from collections.abc import Iterator
from contextlib import contextmanager

from toolpost.authoring.conversation import Listener
from toolpost.base.caller import Principal
from toolpost.base.ids import ThreadId, TraceId, TurnId
from toolpost.parts.conversations.agents import Crew
from toolpost.parts.conversations.caller_threads import OwnThreads
from toolpost.parts.conversations.turn import TurnRun
from toolpost.shares import Callers
from toolpost.store.threads import Threads


class UnderWay(OwnThreads):
    """What is going on in conversations, in this process."""

    def __init__(self, threads: Threads, crew: Crew, callers: Callers, *, kept: int) -> None:
        super().__init__(threads, crew, callers, kept=kept)
        self._runs: dict[TurnId, TurnRun] = {}
        self._listeners: dict[ThreadId, set[Listener]] = {}

    @property
    def runs(self) -> list[TurnRun]:
        """Every turn that has not ended, in the order in which they came."""
        return list(self._runs.values())

    def running_in(self, thread: ThreadId) -> list[TurnId]:
        """Return the turns that run or wait in a thread, in order."""
        return [run.info.turn for run in self.runs_of(thread)]

    @contextmanager
    def listening(self, thread: ThreadId, listener: Listener) -> Iterator[None]:
        """Have somebody told all that happens in a thread, while this lasts."""
        self._listeners.setdefault(thread, set()).add(listener)
        for run in self.runs_of(thread):
            run.listeners.add(listener)
        try:
            yield
        finally:
            self._listeners[thread].discard(listener)
            if not self._listeners[thread]:
                del self._listeners[thread]
            for run in self.runs_of(thread):
                run.listeners.discard(listener)

    def standing_in(self, thread: ThreadId) -> Principal | None:
        """Say in whose name the agent of a thread acts, and what they may; None if it is not its turn."""
        return next((run.standing for run in self.runs_of(thread)), None)

    def runs_of(self, thread: ThreadId) -> list[TurnRun]:
        """Return the turns of a thread that have not ended, the one that runs first."""
        return [run for run in self._runs.values() if run.info.thread == thread]

    def trace_of(self, thread: ThreadId) -> TraceId | None:
        """Return the trace of the turn that runs in a thread: what its agent calls is part of it."""
        run = next(iter(self.runs_of(thread)), None)
        return run.info.trace_id if run is not None else None
