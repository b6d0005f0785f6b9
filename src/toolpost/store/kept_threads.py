"""Conversations in a store of any kind, which runs their steps for reading or in a transaction."""

from collections.abc import Awaitable
from typing import Protocol

from toolpost.base.ids import CallerId, JsonObject, ThreadId, TurnId
from toolpost.store import threads_sql as sql
from toolpost.store.threads import Ending, Message, Resumable, Thread, Turn
from toolpost.store.threads_sql import Make, Result


class Runs(Protocol):
    """Runs the steps that are made for it, each time from the beginning."""

    def __call__(self, make: Make[Result], /) -> Awaitable[Result]:
        """Return what they return."""
        ...


class KeptThreads:
    """Every conversation of a store."""

    def __init__(self, *, write: Runs, read: Runs) -> None:
        self._write = write
        self._read = read

    async def create(self, thread: Thread, *, share: int | None = None, total: int | None = None) -> int | None:
        """Keep a new thread and return None, or how many its caller has if there is no room for it."""
        return await self._write(lambda: sql.create(thread, share, total))

    async def find(self, thread: ThreadId) -> Thread | None:
        """Return a thread."""
        return await self._read(lambda: sql.find(thread))

    async def page(self, caller: CallerId | None, *, before: float | None = None, limit: int = 50) -> list[Thread]:
        """Return a caller's threads, or everybody's, those that changed last first."""
        return await self._read(lambda: sql.page(caller, before, limit))

    async def set(
        self, thread: ThreadId, *, title: str | None = None, agent: str | None = None, model: str | None = None
    ) -> None:
        """Change what a person may change of a thread; what is None stays, an agent or a model that is empty is forgotten."""
        await self._write(lambda: sql.change(thread, title, agent, model))

    async def delete(self, thread: ThreadId) -> None:
        """Forget a thread with all that was said in it."""
        await self._write(lambda: sql.delete(thread))

    async def messages(self, thread: ThreadId, *, after: int = 0, limit: int = 100) -> list[Message]:
        """Return messages past a number, in order."""
        return await self._read(lambda: sql.messages(thread, after, limit))

    async def last_messages(self, thread: ThreadId, *, after: int, up_to: int, limit: int) -> list[Message]:
        """Return the last messages of those past `after` and up to and with `up_to`, in order."""
        return await self._read(lambda: sql.last_messages(thread, after, up_to, limit))

    async def turns(self, thread: ThreadId, *, limit: int = 50) -> list[Turn]:
        """Return a thread's turns, the latest first."""
        return await self._read(lambda: sql.turns(thread, limit))

    async def find_turn(self, turn: TurnId) -> Turn | None:
        """Return a turn."""
        return await self._read(lambda: sql.find_turn(turn))

    async def begin(self, turn: Turn, text: str, details: JsonObject | None = None, *, title: str = "") -> int | None:
        """Keep a message and the turn that it begins; returns its number, None if there is no such thread.

        A thread that has no title gets this one.
        """
        return await self._write(lambda: sql.begin(turn, text, details, title))

    async def note(self, turn: TurnId, *, partial: str, at_utc: float) -> None:
        """Keep what has come of an answer so far, and that somebody is at it."""
        await self._write(lambda: sql.note(turn, partial, at_utc))

    async def end(self, ending: Ending, *, resumable: Resumable | None = None) -> int | None:
        """End a turn that runs; returns the number of its answer. One that has ended already stays as it is."""
        return await self._write(lambda: sql.end(ending, resumable))

    async def ask_to_stop(self, thread: ThreadId, *, turn: TurnId | None, but: str) -> list[Turn]:
        """Ask for a turn of a thread to be stopped, or for all, except those of one runner; returns which were asked for."""
        return await self._write(lambda: sql.ask_to_stop(thread, turn, but))

    async def asked_to_stop(self, runner: str) -> list[tuple[TurnId, bool]]:
        """Return the turns of a runner that are to stop, and of each whether all others of its thread are, too."""
        return await self._read(lambda: sql.asked_to_stop(runner))

    async def running(self) -> list[Turn]:
        """Return every turn that has not ended."""
        return await self._read(sql.running)
