"""Turns of this process that have not ended, and the listeners of their threads."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

import anyio

from toolpost.base import ThreadId
from toolpost.parts.agents.ids import TurnId
from toolpost.parts.agents.turn import LiveTurn
from toolpost.parts.agents.values import Listener

CLOSE_S: Final = 3.0
"""How long turns may take to stop when the server ends."""


class LiveTurns:
    """The turns that run or wait in this process, in the order in which their messages came."""

    def __init__(self) -> None:
        self._runs: dict[TurnId, LiveTurn] = {}
        self._listeners: dict[ThreadId, set[Listener]] = {}
        self.by_id: Mapping[TurnId, LiveTurn] = MappingProxyType(self._runs)
        """A live view of the turns."""

    def add(self, run: LiveTurn) -> None:
        """Register a turn until `remove`."""
        self._runs[run.info.turn] = run

    def remove(self, run: LiveTurn) -> None:
        """Forget a turn, and release its waiters."""
        self._runs.pop(run.info.turn, None)
        # Both, whatever became of the turn: one that failed before its end would leave waiters forever.
        run.done.set()
        run.hooks_done.set()

    def list_in(self, thread: ThreadId) -> list[LiveTurn]:
        """Return the turns of a thread, the one that runs first."""
        return [run for run in self._runs.values() if run.info.thread == thread]

    def find_current(self, thread: ThreadId) -> LiveTurn | None:
        """Return the turn that runs in a thread, None if none does."""
        return next(iter(self.list_in(thread)), None)

    def listeners_of(self, thread: ThreadId) -> set[Listener]:
        """Return the listeners of a thread, which a turn that is added to it starts with."""
        return self._listeners.get(thread, set())

    @contextmanager
    def open_listener(self, thread: ThreadId, listener: Listener) -> Iterator[None]:
        """Pass every event of a thread to a listener, of turns that start later too, until the block is left."""
        self._listeners.setdefault(thread, set()).add(listener)
        for run in self.list_in(thread):
            run.listeners.add(listener)
        try:
            yield
        finally:
            self._listeners[thread].discard(listener)
            if not self._listeners[thread]:
                del self._listeners[thread]
            for run in self.list_in(thread):
                run.listeners.discard(listener)

    async def stop_all(self) -> None:
        """Stop every turn because the server ends; wait up to `CLOSE_S` for them, even if cancelled."""
        runs = list(self._runs.values())
        # All are told before any is waited for, so that the time limit is for all of them together.
        for run in runs:
            run.stop("closing", "the server is shutting down")
        with anyio.move_on_after(CLOSE_S, shield=True):
            for run in runs:
                await run.hooks_done.wait()
