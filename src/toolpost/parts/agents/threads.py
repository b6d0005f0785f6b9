"""Conversations: threads, the messages in them, and their turns (one for each time an agent is to answer).

To add a column to a thread: a migration for each database, a field of `Thread`, and the code that sets it. The statements follow
from the fields, and `toolpost store migrate` finds the tables of parts in the database.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

import msgspec

from toolpost import CallerId
from toolpost.base import JsonObject, ThreadId, TraceId
from toolpost.parts.agents.ids import AgentSessionId, TurnId
from toolpost.parts.agents.turn_events import TurnState
from toolpost.store import Row, Script, Statement, TableAccess, marks, reads, writes

Role = Literal["user", "assistant"]


@dataclass(frozen=True, kw_only=True)
class Thread:
    """A conversation."""

    id: ThreadId
    caller: CallerId
    """Its owner; for other callers it does not exist."""
    title: str
    agent: str | None
    """The agent that answers; None is the default at the time of a message."""
    model: str | None
    created_at: float
    changed_at: float
    last_seq: int = 0
    session: AgentSessionId | None = None
    """The agent's own id of its last session for this thread, if it can be resumed by that."""
    session_profile: str | None = None
    """The profile of that session: under another one it is not resumed."""
    session_told: int = 0
    """`known_seq` of that session, stored: the `seq` of the last message that it knows."""


@dataclass(frozen=True, kw_only=True)
class ThreadMessage:
    """A message of a caller or an agent."""

    thread: ThreadId
    seq: int
    turn: TurnId
    role: Role
    text: str
    at_utc: float
    details: JsonObject | None = None


@dataclass(frozen=True, kw_only=True)
class Turn:
    """An answer to one message, in progress or ended."""

    id: TurnId
    thread: ThreadId
    state: TurnState
    trace_id: TraceId
    runner: str
    """The process that runs it: `recorder.own_process_id()`."""
    started_at: float
    alive_at: float
    ended_at: float | None = None
    partial: str = ""
    error: JsonObject | None = None


@dataclass(frozen=True, kw_only=True)
class TurnEndRecord:
    """How a turn ended."""

    turn: TurnId
    state: TurnState
    text: str | None
    """The answer, stored as a message; None stores none."""
    at_utc: float
    error: JsonObject | None = None
    details: JsonObject | None = None


@dataclass(frozen=True, kw_only=True)
class Resumable:
    """An agent session that can be resumed later."""

    session: AgentSessionId
    profile: str


_THREAD: Final = tuple(field.name for field in fields(Thread))
_MESSAGE: Final = tuple(field.name for field in fields(ThreadMessage))
_TURN: Final = tuple(field.name for field in fields(Turn))

_THREADS: Final = f"SELECT {', '.join(_THREAD)} FROM threads"  # noqa: S608 - constants
_MESSAGES: Final = f"SELECT {', '.join(_MESSAGE)} FROM thread_messages"  # noqa: S608 - constants
_TURNS: Final = f"SELECT {', '.join(_TURN)} FROM thread_turns"  # noqa: S608 - constants


class Threads(TableAccess):
    """Every conversation. A method that names a thread or turn which does not exist changes nothing."""

    @writes(durable=False)
    def create(self, thread: Thread, *, share: int | None = None, total: int | None = None) -> Script[int | None]:
        """Store a new thread and return None; over a limit return how many its caller has, and store nothing.

        `share` is the limit of its caller, `total` that of all callers together.
        """
        if share is not None and total is not None:
            # The thread itself does not count: it is there already if this is run again.
            count = "SELECT count(*) FROM (SELECT 1 FROM threads WHERE id <> ?1{} LIMIT ?2) AS kept"
            ((own,),) = yield Statement(count.format(" AND caller = ?3"), (thread.id, share, thread.caller))
            ((kept,),) = yield Statement(count.format(""), (thread.id, total))
            if own >= share or kept >= total:
                return int(own)
        values = tuple(getattr(thread, name) for name in _THREAD)
        yield Statement(f"{_insert('threads', _THREAD)} ON CONFLICT (id) DO NOTHING", values)
        return None

    @reads
    def find(self, thread: ThreadId) -> Script[Thread | None]:
        """Return a thread, None if there is none."""
        rows = yield Statement(f"{_THREADS} WHERE id = ?1", (thread,))
        return _parse_thread(rows[0]) if rows else None

    @reads
    def page(self, caller: CallerId | None, *, before: float | None = None, limit: int = 50) -> Script[list[Thread]]:
        """Return threads of a caller, or of all, that changed before a time, the latest first."""
        values: tuple[Any, ...]
        where, values = "changed_at < ?1", (float("inf") if before is None else before, limit)
        if caller is not None:
            # Its own statement: with `?3 IS NULL OR caller = ?3` SQLite would not use the index on callers.
            where, values = f"{where} AND caller = ?3", (*values, caller)
        rows = yield Statement(f"{_THREADS} WHERE {where} ORDER BY changed_at DESC, id LIMIT ?2", values)
        return [_parse_thread(row) for row in rows]

    @writes(durable=False)
    def set(
        self, thread: ThreadId, *, title: str | None = None, agent: str | None = None, model: str | None = None
    ) -> Script[None]:
        """Change what a person may change of a thread; None leaves it, an empty agent or model unsets it."""
        yield Statement(
            "UPDATE threads SET title = COALESCE(?2, title), agent = NULLIF(COALESCE(?3, agent), ''),"
            " model = NULLIF(COALESCE(?4, model), '') WHERE id = ?1",
            (thread, title, agent, model),
        )

    @writes(durable=False)
    def delete(self, thread: ThreadId) -> Script[None]:
        """Delete a thread with its messages and turns."""
        yield Statement("DELETE FROM thread_messages WHERE thread = ?1", (thread,))
        yield Statement("DELETE FROM thread_turns WHERE thread = ?1", (thread,))
        yield Statement("DELETE FROM threads WHERE id = ?1", (thread,))

    @reads
    def messages(self, thread: ThreadId, *, after: int = 0, limit: int = 100) -> Script[list[ThreadMessage]]:
        """Return the first messages past a `seq`, in order."""
        where = "thread = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3"
        rows = yield Statement(f"{_MESSAGES} WHERE {where}", (thread, after, limit))
        return [_parse_message(row) for row in rows]

    @reads
    def last_messages(self, thread: ThreadId, *, after: int, up_to: int, limit: int) -> Script[list[ThreadMessage]]:
        """Return the last messages of those past `after` and up to and with `up_to`, in order."""
        where = "thread = ?1 AND seq > ?2 AND seq <= ?3 ORDER BY seq DESC LIMIT ?4"
        rows = yield Statement(f"{_MESSAGES} WHERE {where}", (thread, after, up_to, limit))
        return [_parse_message(row) for row in reversed(rows)]

    @reads
    def turns(self, thread: ThreadId, *, limit: int = 50) -> Script[list[Turn]]:
        """Return a thread's turns, the latest first."""
        rows = yield Statement(f"{_TURNS} WHERE thread = ?1 ORDER BY started_at DESC, id LIMIT ?2", (thread, limit))
        return [_parse_turn(row) for row in rows]

    @reads
    def find_turn(self, turn: TurnId) -> Script[Turn | None]:
        """Return a turn, None if there is none."""
        rows = yield Statement(f"{_TURNS} WHERE id = ?1", (turn,))
        return _parse_turn(rows[0]) if rows else None

    @writes(durable=False)
    def begin(self, turn: Turn, text: str, details: JsonObject | None = None, *, title: str = "") -> Script[int | None]:
        """Store a message and the turn that it begins; returns its `seq`, None if there is no such thread.

        A thread without a title gets this one.
        """
        known = yield Statement("SELECT seq FROM thread_messages WHERE turn = ?1 AND role = 'user'", (turn.id,))
        if known:
            return int(known[0][0])  # run again
        seq = yield from _next_seq(turn.thread, turn.started_at, title)
        if seq is None:
            return None
        yield _insert_message(turn.thread, seq, turn.id, "user", text, turn.started_at, details)
        values = tuple(_encode(turn.error) if name == "error" else getattr(turn, name) for name in _TURN)
        yield Statement(_insert("thread_turns", _TURN), values)
        return seq

    @writes(durable=False)
    def note(self, turn: TurnId, *, partial: str, at_utc: float) -> Script[None]:
        """Store what there is of an answer so far, and that its runner was alive at this time."""
        yield Statement(
            "UPDATE thread_turns SET partial = ?2, alive_at = ?3 WHERE id = ?1 AND state = 'running'",
            (turn, partial, at_utc),
        )

    @writes(durable=False)
    def end(self, ending: TurnEndRecord, *, resumable: Resumable | None = None) -> Script[int | None]:
        """End a running turn; returns the `seq` of its answer. One that has ended already stays as it is."""
        rows = yield Statement(
            "UPDATE thread_turns SET state = ?2, ended_at = ?3, error = ?4, partial = ''"
            " WHERE id = ?1 AND state = 'running' RETURNING thread",
            (ending.turn, ending.state, ending.at_utc, _encode(ending.error)),
        )
        if not rows:
            find = "SELECT seq FROM thread_messages WHERE turn = ?1 AND role = 'assistant'"
            known = yield Statement(find, (ending.turn,))
            return int(known[0][0]) if known else None
        thread = ThreadId(rows[0][0])
        seq = None
        if ending.text is not None:
            seq = yield from _next_seq(thread, ending.at_utc)
            if seq is not None:
                yield _insert_message(thread, seq, ending.turn, "assistant", ending.text, ending.at_utc, ending.details)
        if resumable is not None:
            yield Statement(
                "UPDATE threads SET session = ?2, session_profile = ?3, session_told = last_seq WHERE id = ?1",
                (thread, resumable.session, resumable.profile),
            )
        return seq

    @writes(durable=False)
    def ask_to_stop(self, thread: ThreadId, *, turn: TurnId | None, but: str) -> Script[list[Turn]]:
        """Ask the runners of a turn, or of all turns of a thread, to stop them, except the runner `but`; returns which."""
        where = "thread = ?1 AND state = 'running' AND runner <> ?2"
        # To stop the whole thread includes to stop this turn, so that a request for the turn does not replace it.
        asked = "'thread'" if turn is None else "COALESCE(stop_asked, 'turn')"
        rows = yield Statement(
            f"UPDATE thread_turns SET stop_asked = {asked} WHERE {where} AND (CAST(?3 AS TEXT) IS NULL OR id = ?3)"  # noqa: S608
            f" RETURNING {', '.join(_TURN)}",
            (thread, but, turn),
        )
        return [_parse_turn(row) for row in rows]

    @reads
    def asked_to_stop(self, runner: str) -> Script[list[tuple[TurnId, bool]]]:
        """Return the turns that a runner is to stop, each with whether its whole thread is to stop."""
        where = "state = 'running' AND runner = ?1 AND stop_asked IS NOT NULL"
        rows = yield Statement(f"SELECT id, stop_asked FROM thread_turns WHERE {where}", (runner,))  # noqa: S608
        return [(TurnId(turn), asked == "thread") for turn, asked in rows]

    @reads
    def running(self) -> Script[list[Turn]]:
        """Return every turn that has not ended."""
        rows = yield Statement(f"{_TURNS} WHERE state = 'running' ORDER BY started_at")
        return [_parse_turn(row) for row in rows]


def _next_seq(thread: ThreadId, at_utc: float, title: str = "") -> Script[int | None]:
    rows = yield Statement(
        "UPDATE threads SET last_seq = last_seq + 1, changed_at = ?2, title = CASE WHEN title = '' THEN ?3 ELSE title END"
        " WHERE id = ?1 RETURNING last_seq",
        (thread, at_utc, title),
    )
    return int(rows[0][0]) if rows else None


def _insert_message(
    thread: ThreadId, seq: int, turn: TurnId, role: Role, text: str, at_utc: float, details: JsonObject | None
) -> Statement:
    values = (thread, seq, turn, role, text, at_utc, _encode(details))
    return Statement(_insert("thread_messages", _MESSAGE), values)


def _insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks(len(columns))})"  # noqa: S608 - constants


def _encode(value: JsonObject | None) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _decode(text: str | None) -> JsonObject | None:
    return None if text is None else msgspec.json.decode(text, type=JsonObject)


def _parse_thread(row: Row) -> Thread:
    return Thread(**dict(zip(_THREAD, row, strict=True)))


def _parse_message(row: Row) -> ThreadMessage:
    values: dict[str, Any] = dict(zip(_MESSAGE, row, strict=True))
    return ThreadMessage(**values | {"details": _decode(values["details"])})


def _parse_turn(row: Row) -> Turn:
    values: dict[str, Any] = dict(zip(_TURN, row, strict=True))
    return Turn(**values | {"error": _decode(values["error"])})
