"""Conversations: threads, what was said in them, and every turn of theirs. Values, and what is asked of a store. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from toolpost.base.ids import AgentSessionId, CallerId, JsonObject, ThreadId, TraceId, TurnId
from toolpost.base.turns import TurnState

Role = Literal["user", "assistant"]


@dataclass(frozen=True, kw_only=True)
class Thread:
    """A conversation."""

    id: ThreadId
    caller: CallerId
    """Whose it is; for anybody else it is not there."""
    title: str
    agent: str | None
    """Who answers; None is whoever is the default when a message comes."""
    model: str | None
    created_at: float
    changed_at: float
    last_seq: int = 0
    session: AgentSessionId | None = None
    """What the agent calls the session that it last had for this thread, if it can be resumed by that."""
    session_profile: str | None = None
    """The profile under which it had it: under another one it is not resumed."""
    session_told: int = 0
    """The last message that this session knows of."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """Something that was said."""

    thread: ThreadId
    seq: int
    turn: TurnId
    role: Role
    text: str
    at_utc: float
    details: JsonObject | None = None


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One time that somebody was answered, or was to be."""

    id: TurnId
    thread: ThreadId
    state: TurnState
    trace_id: TraceId
    runner: str
    """The process that runs it."""
    started_at: float
    alive_at: float
    ended_at: float | None = None
    partial: str = ""
    error: JsonObject | None = None


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a turn ended."""

    turn: TurnId
    state: TurnState
    text: str | None
    """The answer, kept as a message; None keeps none."""
    at_utc: float
    error: JsonObject | None = None
    details: JsonObject | None = None


@dataclass(frozen=True, kw_only=True)
class Resumable:
    """A session by which an agent can go on later."""

    session: AgentSessionId
    profile: str


class Threads(Protocol):
    """Every conversation. What is done to one that is not there does nothing."""

    async def create(self, thread: Thread, *, share: int | None = None, total: int | None = None) -> int | None:
        """Keep a new thread and return None; or how many its caller has, if that is `share`, or there are `total` of all."""
        ...

    async def find(self, thread: ThreadId) -> Thread | None:
        """Return a thread."""
        ...

    async def page(self, caller: CallerId | None, *, before: float | None = None, limit: int = 50) -> list[Thread]:
        """Return a caller's threads, or everybody's, those that changed last first."""
        ...

    async def set(
        self, thread: ThreadId, *, title: str | None = None, agent: str | None = None, model: str | None = None
    ) -> None:
        """Change what a person may change of a thread; what is None stays, an agent or a model that is empty is forgotten."""
        ...

    async def delete(self, thread: ThreadId) -> None:
        """Forget a thread with all that was said in it."""
        ...

    async def messages(self, thread: ThreadId, *, after: int = 0, limit: int = 100) -> list[Message]:
        """Return messages past a number, in order."""
        ...

    async def last_messages(self, thread: ThreadId, *, after: int, up_to: int, limit: int) -> list[Message]:
        """Return the last messages of those past `after` and up to and with `up_to`, in order."""
        ...

    async def turns(self, thread: ThreadId, *, limit: int = 50) -> list[Turn]:
        """Return a thread's turns, the latest first."""
        ...

    async def find_turn(self, turn: TurnId) -> Turn | None:
        """Return a turn."""
        ...

    async def begin(self, turn: Turn, text: str, details: JsonObject | None = None, *, title: str = "") -> int | None:
        """Keep a message and the turn that it begins; returns its number, None if there is no such thread.

        A thread that has no title gets this one.
        """
        ...

    async def note(self, turn: TurnId, *, partial: str, at_utc: float) -> None:
        """Keep what has come of an answer so far, and that somebody is at it."""
        ...

    async def end(self, ending: Ending, *, resumable: Resumable | None = None) -> int | None:
        """End a turn that runs; returns the number of its answer. One that has ended already stays as it is."""
        ...

    async def ask_to_stop(self, thread: ThreadId, *, turn: TurnId | None, but: str) -> Sequence[Turn]:
        """Ask for a turn of a thread to be stopped, or for all, except those of one runner; returns which were asked for."""
        ...

    async def asked_to_stop(self, runner: str) -> Sequence[tuple[TurnId, bool]]:
        """Return the turns of a runner that are to stop, and of each whether all others of its thread are, too."""
        ...

    async def running(self) -> Sequence[Turn]:
        """Return every turn that has not ended."""
        ...
