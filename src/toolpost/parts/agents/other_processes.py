"""Cancellation across processes that share a store: request a stop of their turns, and act on their requests.

A request is a mark on the turn's row and a wake-up for the process that runs it. Wake-ups may be lost, so a process with running
turns also looks every `LOOK_S`.
"""

import logging
from collections.abc import Mapping
from typing import Final

import anyio

from toolpost.base import ThreadId, event
from toolpost.contracts import GatewayError
from toolpost.parts.agents.ids import TurnId
from toolpost.parts.agents.threads import Threads
from toolpost.parts.agents.turn import LiveTurn
from toolpost.store import Wakeups

_log = logging.getLogger("toolpost.parts.agents")

CANCEL_REASON: Final = "a cancellation was requested"

LOOK_S: Final = 5.0

IDLE_LOOKS: Final = 12
"""After how many looks without a turn the listener is closed: it stays open between the messages of a conversation."""


class OtherProcesses:
    """Requests to stop turns, sent to and received from other processes on the same store."""

    def __init__(self, threads: Threads, wakeups: Wakeups, process: str) -> None:
        """Take the id of this process, as turns are recorded with it."""
        self._threads = threads
        self._wakeups = wakeups
        self._process = process
        self._has_turns = anyio.Event()

    def note_turn(self) -> None:
        """Start listening, because a turn has started in this process."""
        self._has_turns.set()

    async def request_stop(self, thread: ThreadId, turn: TurnId | None = None) -> list[TurnId]:
        """Request that a turn of a thread, or all of them, stop where other processes run them; return which these are."""
        marked = await self._threads.ask_to_stop(thread, turn=turn, but=self._process)
        for runner in {each.runner for each in marked}:
            self._wakeups.ring(_topic(runner))
        return [each.id for each in marked]

    async def stop_and_wait(self, thread: ThreadId, *, within_s: float) -> None:
        """Stop what other processes run in a thread; return when it has ended, or after `within_s`."""
        turns = await self.request_stop(thread)
        with anyio.move_on_after(within_s):
            for turn in turns:
                # Its end is known only from the store.
                while (found := await self._threads.find_turn(turn)) and found.state == "running":  # noqa: ASYNC110
                    await anyio.sleep(0.05)

    async def listen(self, runs: Mapping[TurnId, LiveTurn]) -> None:
        """Stop those of these turns that other processes request to stop, until cancelled; without turns, read nothing."""
        while True:
            await self._has_turns.wait()
            idle = 0
            async with self._wakeups.open_listener(_topic(self._process)) as listener:
                while idle < IDLE_LOOKS:
                    with anyio.move_on_after(LOOK_S):
                        await listener.wait()
                    idle = 0 if runs else idle + 1
                    if runs:
                        await self._stop_requested(runs)
            self._has_turns = anyio.Event()
            if runs:
                self._has_turns.set()

    async def _stop_requested(self, runs: Mapping[TurnId, LiveTurn]) -> None:
        try:
            requested = await self._threads.asked_to_stop(self._process)
        except GatewayError as error:
            event(_log, logging.WARNING, "requests to stop turns could not be read", reason=error.message)
            return
        for turn, is_all in requested:
            run = runs.get(turn)
            if run is None or run.stop_kind is not None:
                continue
            # Turns that still wait in the thread have no row yet that could be marked: they stop with the marked one.
            in_thread = [each for each in runs.values() if is_all and each.info.thread == run.info.thread]
            for each in in_thread or [run]:
                each.stop("cancelled", CANCEL_REASON)


def _topic(process: str) -> str:
    return f"turns of {process}"
