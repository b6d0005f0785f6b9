"""Turns that other processes run on the same store: told to stop through it; and what others tell this one is heard."""

import logging
from collections.abc import Mapping
from typing import Final

import anyio

from toolpost.base.events import event
from toolpost.base.ids import ThreadId, TurnId
from toolpost.contracts.errors import GatewayError
from toolpost.parts.conversations.turn import TurnRun
from toolpost.store.threads import Threads
from toolpost.store.wakeups import Wakeups

_log = logging.getLogger("toolpost.parts.conversations")

ASKED_FOR: Final = "somebody asked for it"

LOOK_S: Final = 5.0
"""A wake-up may be lost: while turns run, it is looked this often, too."""

LINGER: Final = 12
"""How many looks without a turn it takes to listen no more: between the messages of a conversation, it goes on."""


class Elsewhere:
    """What is asked of other processes, and what they ask of this one."""

    def __init__(self, threads: Threads, wakeups: Wakeups, name: str) -> None:
        self._threads = threads
        self._wakeups = wakeups
        self._name = name
        self.wanted = anyio.Event()
        """Set by whoever has begun a turn here."""

    async def ask(self, thread: ThreadId, turn: TurnId | None = None) -> list[TurnId]:
        """Ask for a turn of a thread to be stopped, or for all of them, where others run them; returns which these are."""
        asked = await self._threads.ask_to_stop(thread, turn=turn, but=self._name)
        for runner in {each.runner for each in asked}:
            self._wakeups.ring(_topic(runner))
        return [each.id for each in asked]

    async def end(self, thread: ThreadId, *, within_s: float) -> None:
        """Have what others run in a thread stop, and wait for that, for a while."""
        asked = await self.ask(thread)
        with anyio.move_on_after(within_s):
            for turn in asked:
                while await self._runs(turn):  # noqa: ASYNC110 (it ends in another process)
                    await anyio.sleep(0.05)

    async def listen(self, runs: Mapping[TurnId, TurnRun]) -> None:
        """Stop what others ask for, among these; nothing is looked at while there are none."""
        while True:
            await self.wanted.wait()
            idle = 0
            async with self._wakeups.open_listener(_topic(self._name)) as bell:
                while idle < LINGER:
                    with anyio.move_on_after(LOOK_S):
                        await bell.wait()
                    idle = 0 if runs else idle + 1
                    if runs:
                        await self._look(runs)
            self.wanted = anyio.Event()
            if runs:
                self.wanted.set()

    async def _runs(self, turn: TurnId) -> bool:
        found = await self._threads.find_turn(turn)
        return found is not None and found.state == "running"

    async def _look(self, runs: Mapping[TurnId, TurnRun]) -> None:
        try:
            asked = await self._threads.asked_to_stop(self._name)
        except GatewayError as error:
            event(_log, logging.WARNING, "what is to stop could not be looked for", reason=error.message)
            return
        for turn, is_all in asked:
            run = runs.get(turn)
            if run is None or run.stop_kind is not None:
                continue
            meant = [each for each in runs.values() if is_all and each.info.thread == run.info.thread]
            for each in meant or [run]:
                each.stop("cancelled", ASKED_FOR)


def _topic(runner: str) -> str:
    return f"turns of {runner}"
