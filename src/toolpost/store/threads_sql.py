"""Conversations in SQL that both kinds of store understand, as generators: each asks for rows, and returns the result.

Each may be run again from its beginning, and does nothing new the second time.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, TypeVar

import msgspec

from toolpost.base.ids import CallerId, JsonObject, ThreadId, TurnId
from toolpost.store.threads import Ending, Message, Resumable, Thread, Turn

Result = TypeVar("Result")
Asked = tuple[str, tuple[Any, ...]]
"""A statement with parameters `?1`, `?2`…, and their values."""

Rows = Sequence[Any]
Steps = Generator[Asked, Rows, Result]
Make = Callable[[], Steps[Result]]

_THREAD: Final = (
    "id, caller, title, agent, model, created_at, changed_at, last_seq, session, session_profile, session_told"
)
_MESSAGE: Final = "thread, seq, turn, role, text, at_utc, details"
_TURN: Final = "id, thread, state, trace_id, runner, started_at, alive_at, ended_at, partial, error"


def create(thread: Thread, share: int | None, total: int | None) -> Steps[int | None]:
    """Keep a new thread and return None, or how many its caller has if there is no room for it."""
    if share is not None and total is not None:
        # Itself it does not count: it may be there already, if this is run again.
        count = "SELECT count(*) FROM (SELECT 1 FROM threads WHERE id <> ?1{} LIMIT ?2) AS kept"
        ((own,),) = yield count.format(" AND caller = ?3"), (thread.id, share, thread.caller)
        ((kept,),) = yield count.format(""), (thread.id, total)
        if own >= share or kept >= total:
            return int(own)
    values = tuple(getattr(thread, name) for name in _THREAD.split(", "))
    yield f"INSERT INTO threads ({_THREAD}) VALUES ({_places(11)}) ON CONFLICT (id) DO NOTHING", values  # noqa: S608
    return None


def find(thread: ThreadId) -> Steps[Thread | None]:
    """Return a thread."""
    rows = yield f"SELECT {_THREAD} FROM threads WHERE id = ?1", (thread,)  # noqa: S608
    return _thread(rows[0]) if rows else None


def page(caller: CallerId | None, before: float | None, limit: int) -> Steps[list[Thread]]:
    """Return threads, those that changed last first."""
    bound = float("inf") if before is None else before
    values: tuple[Any, ...]
    if caller is None:
        wanted, values = "changed_at < ?1", (bound, limit)
    else:
        wanted, values = "changed_at < ?1 AND caller = ?3", (bound, limit, caller)
    rows = yield f"SELECT {_THREAD} FROM threads WHERE {wanted} ORDER BY changed_at DESC, id LIMIT ?2", values  # noqa: S608
    return [_thread(row) for row in rows]


def change(thread: ThreadId, title: str | None, agent: str | None, model: str | None) -> Steps[None]:
    """Change what a person may change of a thread; what is None stays, an agent or a model that is empty is forgotten."""
    changed = (
        "title = COALESCE(?2, title), agent = NULLIF(COALESCE(?3, agent), ''), model = NULLIF(COALESCE(?4, model), '')"
    )
    yield f"UPDATE threads SET {changed} WHERE id = ?1", (thread, title, agent, model)  # noqa: S608


def delete(thread: ThreadId) -> Steps[None]:
    """Forget a thread with all that was said in it."""
    yield "DELETE FROM thread_messages WHERE thread = ?1", (thread,)
    yield "DELETE FROM thread_turns WHERE thread = ?1", (thread,)
    yield "DELETE FROM threads WHERE id = ?1", (thread,)


def messages(thread: ThreadId, after: int, limit: int) -> Steps[list[Message]]:
    """Return messages past a number, in order."""
    rows = yield (
        f"SELECT {_MESSAGE} FROM thread_messages WHERE thread = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",  # noqa: S608
        (thread, after, limit),
    )
    return [_message(row) for row in rows]


def last_messages(thread: ThreadId, after: int, up_to: int, limit: int) -> Steps[list[Message]]:
    """Return the last messages of a stretch, in order."""
    wanted = "thread = ?1 AND seq > ?2 AND seq <= ?3 ORDER BY seq DESC LIMIT ?4"
    rows = yield f"SELECT {_MESSAGE} FROM thread_messages WHERE {wanted}", (thread, after, up_to, limit)  # noqa: S608
    return [_message(row) for row in reversed(rows)]


def turns(thread: ThreadId, limit: int) -> Steps[list[Turn]]:
    """Return a thread's turns, the latest first."""
    rows = yield (
        f"SELECT {_TURN} FROM thread_turns WHERE thread = ?1 ORDER BY started_at DESC, id LIMIT ?2",  # noqa: S608
        (thread, limit),
    )
    return [_turn(row) for row in rows]


def find_turn(turn: TurnId) -> Steps[Turn | None]:
    """Return a turn."""
    rows = yield f"SELECT {_TURN} FROM thread_turns WHERE id = ?1", (turn,)  # noqa: S608
    return _turn(rows[0]) if rows else None


def begin(turn: Turn, text: str, details: JsonObject | None, title: str) -> Steps[int | None]:
    """Keep a message and the turn that it begins; a thread without a title gets this one."""
    known = yield "SELECT seq FROM thread_messages WHERE turn = ?1 AND role = 'user'", (turn.id,)
    if known:
        return int(known[0][0])
    seq = yield from _next_seq(turn.thread, turn.started_at, title)
    if seq is None:
        return None
    yield _kept(turn.thread, seq, turn.id, "user", text, turn.started_at, details)
    values = (*(getattr(turn, name) for name in _TURN.split(", ")[:-1]), _written(turn.error))
    yield f"INSERT INTO thread_turns ({_TURN}) VALUES ({_places(10)})", values  # noqa: S608
    return seq


def note(turn: TurnId, partial: str, at_utc: float) -> Steps[None]:
    """Keep what has come of an answer so far."""
    yield (
        "UPDATE thread_turns SET partial = ?2, alive_at = ?3 WHERE id = ?1 AND state = 'running'",
        (turn, partial, at_utc),
    )


def end(ending: Ending, resumable: Resumable | None) -> Steps[int | None]:
    """End a turn that runs."""
    changed = "state = ?2, ended_at = ?3, error = ?4, partial = ''"
    rows = yield (
        f"UPDATE thread_turns SET {changed} WHERE id = ?1 AND state = 'running' RETURNING thread",  # noqa: S608
        (ending.turn, ending.state, ending.at_utc, _written(ending.error)),
    )
    if not rows:
        known = yield "SELECT seq FROM thread_messages WHERE turn = ?1 AND role = 'assistant'", (ending.turn,)
        return int(known[0][0]) if known else None
    thread = ThreadId(rows[0][0])
    seq = None
    if ending.text is not None:
        seq = yield from _next_seq(thread, ending.at_utc)
        if seq is not None:
            yield _kept(thread, seq, ending.turn, "assistant", ending.text, ending.at_utc, ending.details)
    if resumable is not None:
        yield (
            "UPDATE threads SET session = ?2, session_profile = ?3, session_told = last_seq WHERE id = ?1",
            (thread, resumable.session, resumable.profile),
        )
    return seq


def ask_to_stop(thread: ThreadId, turn: TurnId | None, but: str) -> Steps[list[Turn]]:
    """Ask for turns to be stopped that run elsewhere."""
    wanted = "thread = ?1 AND state = 'running' AND runner <> ?2"
    values: tuple[Any, ...]
    if turn is None:
        asked, values = f"UPDATE thread_turns SET stop_asked = 'thread' WHERE {wanted}", (thread, but)  # noqa: S608
    else:
        # Whoever has asked for all of the thread has asked for this one, too.
        changed = "stop_asked = COALESCE(stop_asked, 'turn')"
        asked, values = f"UPDATE thread_turns SET {changed} WHERE {wanted} AND id = ?3", (thread, but, turn)  # noqa: S608
    rows = yield f"{asked} RETURNING {_TURN}", values
    return [_turn(row) for row in rows]


def asked_to_stop(runner: str) -> Steps[list[tuple[TurnId, bool]]]:
    """Return what was asked of a runner."""
    wanted = "state = 'running' AND runner = ?1 AND stop_asked IS NOT NULL"
    rows = yield f"SELECT id, stop_asked FROM thread_turns WHERE {wanted}", (runner,)  # noqa: S608
    return [(TurnId(row[0]), row[1] == "thread") for row in rows]


def running() -> Steps[list[Turn]]:
    """Return every turn that has not ended."""
    rows = yield f"SELECT {_TURN} FROM thread_turns WHERE state = 'running' ORDER BY started_at", ()  # noqa: S608
    return [_turn(row) for row in rows]


def _next_seq(thread: ThreadId, at_utc: float, title: str = "") -> Steps[int | None]:
    changed = "last_seq = last_seq + 1, changed_at = ?2, title = CASE WHEN title = '' THEN ?3 ELSE title END"
    rows = yield f"UPDATE threads SET {changed} WHERE id = ?1 RETURNING last_seq", (thread, at_utc, title)  # noqa: S608
    return int(rows[0][0]) if rows else None


def _kept(
    thread: ThreadId, seq: int, turn: TurnId, role: str, text: str, at_utc: float, details: JsonObject | None
) -> Asked:
    values = (thread, seq, turn, role, text, at_utc, _written(details))
    return f"INSERT INTO thread_messages ({_MESSAGE}) VALUES ({_places(7)})", values  # noqa: S608


def _places(count: int) -> str:
    return ", ".join(f"?{number}" for number in range(1, count + 1))


def _written(value: JsonObject | None) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _read(text: str | None) -> JsonObject | None:
    return None if text is None else msgspec.json.decode(text, type=JsonObject)


def _thread(row: Sequence[Any]) -> Thread:
    return Thread(**dict(zip(_THREAD.split(", "), row, strict=True)))


def _message(row: Sequence[Any]) -> Message:
    fields = dict(zip(_MESSAGE.split(", "), row, strict=True))
    return Message(**fields | {"details": _read(fields["details"])})


def _turn(row: Sequence[Any]) -> Turn:
    fields = dict(zip(_TURN.split(", "), row, strict=True))
    return Turn(**fields | {"error": _read(fields["error"])})
