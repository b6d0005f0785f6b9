"""Stored large results and their transactions, for both databases.

A result is written in several transactions, so that other calls need not wait for 50 MB: first its row, which takes its place in
what the caller may keep, then its chunks, then the row is marked as complete. What a killed gateway leaves incomplete cannot be
read, and goes when it expires.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NewType

import msgspec

from toolpost import CallerId
from toolpost.store import NOW, Script, Statement, change, lock_name, marks

ResultId = NewType("ResultId", str)
"""Not to be guessed: callers without names of their own share one owner."""

CHUNK_BYTES: Final = 256 * 1024
COUNT_LIMIT: Final = 10_000
"""Results that are kept for one caller: so many rows are added up whenever one is added."""
_AT_ONCE: Final = 100

_COLUMNS: Final = "id, caller, tool, call_id, digest, bytes, total_bytes, places, created_at, expires_at"


@dataclass(frozen=True, kw_only=True)
class KeptResult:
    """The row of a kept result."""

    id: ResultId
    caller: CallerId
    tool: str
    call_id: str
    digest: str
    """Of the first `bytes`, as in the audit."""
    bytes: int
    total_bytes: int
    """With the content that the tool gave beside its data, which the audit does not digest."""
    places: Mapping[str, tuple[int, int]]
    """Where values begin and end, by JSON pointer; the first is the one to read."""
    created_at: float = 0.0
    expires_at: float = 0.0


def begin(new: KeptResult, *, keep_s: float, limit_bytes: int) -> Script[float | None]:
    """Make room for a result, the oldest of its caller go first; return when it expires, None if it is too large to keep."""
    if new.total_bytes > limit_bytes:
        return None
    # Two gateways that keep results of one caller must not both count the other's as absent.
    yield lock_name(f"results of {new.caller}")
    ((now,),) = yield NOW
    if not (yield Statement("SELECT id FROM results_kept WHERE id = ?1", (new.id,))):
        yield from _make_room(new.caller, limit_bytes - new.total_bytes)
        places = msgspec.json.encode(new.places).decode()
        yield Statement(
            f"INSERT INTO results_kept ({_COLUMNS}, is_complete) VALUES ({marks(10)}, 0)",
            (
                new.id,
                new.caller,
                new.tool,
                new.call_id,
                new.digest,
                new.bytes,
                new.total_bytes,
                places,
                now,
                now + keep_s,
            ),
        )
    return float(now + keep_s)


def _make_room(caller: CallerId, room: int) -> Script[None]:
    while True:
        ((count, total),) = yield Statement(
            "SELECT count(*), coalesce(sum(total_bytes), 0) FROM results_kept WHERE caller = ?1", (caller,)
        )
        if total <= room and count < COUNT_LIMIT:
            return
        rows = yield Statement(
            "SELECT id, total_bytes FROM results_kept WHERE caller = ?1 ORDER BY created_at, id LIMIT ?2",
            (caller, _AT_ONCE),
        )
        gone = []
        for name, size in rows:
            if total <= room and count < COUNT_LIMIT:
                break
            gone.append(str(name))
            total, count = total - size, count - 1
        yield from _delete(gone)


def add_chunks(result: ResultId, numbers: range, chunk: Callable[[int], bytes]) -> Script[bool]:
    """Add the chunks with these numbers; return False if the result had to make room for others.

    `chunk` makes one when it is written, so that one at a time is copied.
    """
    # Locked, or chunks could be added behind the back of who removes them.
    if not (yield Statement("SELECT id FROM results_kept WHERE id = ?1 /*lock*/", (result,))):
        return False
    for number in numbers:
        yield Statement(
            "INSERT INTO results_chunks (result, number, data) VALUES (?1, ?2, ?3) ON CONFLICT (result, number) DO NOTHING",
            (result, number, chunk(number)),
        )
    return True


def complete(result: ResultId) -> Script[bool]:
    """Let a result be read; return False if it had to make room for others."""
    return bool((yield change("UPDATE results_kept SET is_complete = 1 WHERE id = ?1", (result,))))


def keep_at_once(
    new: KeptResult, numbers: range, chunk: Callable[[int], bytes], *, keep_s: float, limit_bytes: int
) -> Script[float | None]:
    """Keep a small result in one transaction; returns what `begin` does."""
    if (expires_at := (yield from begin(new, keep_s=keep_s, limit_bytes=limit_bytes))) is not None:
        yield from add_chunks(new.id, numbers, chunk)
        yield from complete(new.id)
    return expires_at


def find(result: ResultId, caller: CallerId) -> Script[KeptResult | None]:
    """Return a result of this caller; None if there is none, or it has expired."""
    ((now,),) = yield NOW
    rows = yield Statement(
        f"SELECT {_COLUMNS} FROM results_kept WHERE id = ?1 AND caller = ?2 AND is_complete = 1 AND expires_at > ?3",
        (result, caller, now),
    )
    if not rows:
        return None
    values: dict[str, Any] = dict(zip(_COLUMNS.split(", "), rows[0], strict=True))
    values["places"] = msgspec.json.decode(values["places"], type=dict[str, tuple[int, int]])
    return KeptResult(**values)


def read_chunks(result: ResultId, caller: CallerId, first: int, last: int) -> Script[list[bytes] | None]:
    """Return some chunks of a result of this caller; None if it is not there, or no longer."""
    if (yield from find(result, caller)) is None:
        return None
    rows = yield Statement(
        "SELECT data FROM results_chunks WHERE result = ?1 AND number BETWEEN ?2 AND ?3 ORDER BY number",
        (result, first, last),
    )
    return [bytes(data) for (data,) in rows]


def delete_expired() -> Script[int]:
    """Delete results whose time is over, some at a time; return how many."""
    ((now,),) = yield NOW
    rows = yield Statement(
        "SELECT id FROM results_kept WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2", (now, _AT_ONCE)
    )
    yield from _delete([str(name) for (name,) in rows])
    return len(rows)


def _delete(results: Sequence[str]) -> Script[None]:
    if results:
        names = marks(len(results))
        # Rows first: a gateway that adds chunks holds the lock of the row.
        yield Statement(f"DELETE FROM results_kept WHERE id IN ({names})", tuple(results))
        yield Statement(f"DELETE FROM results_chunks WHERE result IN ({names})", tuple(results))


def measure() -> Script[tuple[int, int]]:
    """Return how many results are kept, and their bytes."""
    ((count, total),) = yield Statement("SELECT count(*), coalesce(sum(total_bytes), 0) FROM results_kept")
    return int(count), int(total)
