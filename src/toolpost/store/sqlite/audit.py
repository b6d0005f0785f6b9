"""The audit's room in a SQLite store."""

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import anyio.to_thread

from toolpost.base.ids import Digest
from toolpost.contracts.errors import GatewayError
from toolpost.store.audit import AuditEntry, AuditFilter, AuditRecord, AuditVerdict
from toolpost.store.chain import FIELDS, ChainWalk, Row, linked, record_of
from toolpost.store.sqlite.transactions import Work

Result = TypeVar("Result")

CHUNK = 1_000
"""How many records are verified between two looks at the rest of the world."""

_COLUMNS = ", ".join(("seq", *FIELDS, "previous", "hash"))
_INSERT = f"INSERT INTO audit ({_COLUMNS}) VALUES ({', '.join('?' * (len(FIELDS) + 3))})"  # noqa: S608 - constants
_SELECT = f"SELECT {_COLUMNS} FROM audit WHERE "  # noqa: S608 - constants
_CONDITIONS = {
    "tool": "tool GLOB ?",
    "caller": "caller = ?",
    "code": "code = ?",
    "outcome": "outcome = ?",
    "since": "at_utc >= ?",
    "until": "at_utc < ?",
    "call_id": "call_id = ?",
    "trace_id": "trace_id = ?",
}
# A head that was tampered with may hold anything.
_HEAD = "SELECT CAST(seq AS INTEGER), CAST(hash AS TEXT) FROM audit_head"
_LOWEST = -(2**63)
_HIGHEST = 2**63 - 1


class Read(Protocol):
    """Runs a job that only reads."""

    async def __call__(self, job: Callable[[sqlite3.Connection], Result], /) -> Result:
        """Return what the job returns."""
        ...


class Submit(Protocol):
    """Has an item worked on, with others unless it comes alone."""

    def __call__(self, work: Work, item: Any, /, *, alone: bool = False) -> Awaitable[Any]:
        """Return what is done when the item is committed."""
        ...


class SqliteAuditLog:
    """The audit in two tables: the records, and the head of their chain."""

    def __init__(self, *, submit: Submit, note: Callable[[Work, AuditEntry], bool], read: Read) -> None:
        self._submit = submit
        self._note = note
        self._read = read

    def append(self, entry: AuditEntry, *, alone: bool = False) -> Awaitable[None]:
        """Put an entry on the record; done when it is committed."""
        return self._submit(append_all, entry, alone=alone)

    def note(self, entry: AuditEntry) -> bool:
        """Write an entry down, to be committed in a moment."""
        return self._note(append_all, entry)

    async def entries(self, matching: AuditFilter, *, after: int = 0, limit: int) -> list[AuditRecord]:
        """Return the records past `after` that match, oldest first, at most `limit`."""
        rows = await self._read(partial(_find, matching=matching, after=after, limit=limit))
        return [record_of(row) for row in rows]

    async def newest(self) -> int:
        """Return the seq of the newest record, 0 if there is none."""
        head = await self._read(_head)
        return head[0] if head else 0

    async def verify(self) -> AuditVerdict:
        """Follow the chain to its head. What is appended meanwhile is left to the next time."""
        head = await self._read(_head)
        end = head[0] if head else _HIGHEST
        walk = ChainWalk()
        start = _LOWEST
        while rows := await self._read(partial(_chunk, start=start, end=end)):
            if verdict := await anyio.to_thread.run_sync(walk.follow, rows):
                return verdict
            start = walk.seq + 1
        verdict = walk.arrive(head)
        if verdict.is_intact and (stray := await self._read(_past_the_head)):
            return walk.broken(stray, "it was slipped in: the head does not know it")
        return verdict


def append_all(connection: sqlite3.Connection, entries: Sequence[AuditEntry]) -> Sequence[None]:
    """Link entries to the chain and write them, within the transaction that is open."""
    # Read within the transaction: another process may have written since the last group.
    head = _head(connection)
    if head is None:
        raise GatewayError("the audit has lost its head", hint="verifying the audit says what is left of it")
    rows = linked(entries, seq=head[0], previous=head[1])
    connection.executemany(_INSERT, rows)
    connection.execute("UPDATE audit_head SET seq = ?, hash = ?", (rows[-1][0], rows[-1][-1]))
    return [None] * len(rows)


def _head(connection: sqlite3.Connection) -> tuple[int, Digest] | None:
    head: tuple[int, Digest] | None = connection.execute(_HEAD).fetchone()
    return head


def _find(connection: sqlite3.Connection, *, matching: AuditFilter, after: int, limit: int) -> list[Row]:
    wanted = {name: value for name in _CONDITIONS if (value := getattr(matching, name)) is not None}
    if "tool" in wanted:
        wanted["tool"] = wanted["tool"].replace("[", "[[]")
    conditions = " AND ".join(("seq > ?", *(_CONDITIONS[name] for name in wanted)))
    if matching.last is None:
        order = "ASC"
    else:
        order, limit = "DESC", min(limit, matching.last)
    found = connection.execute(
        f"{_SELECT} {conditions} ORDER BY seq {order} LIMIT ?", (after, *wanted.values(), max(0, limit))
    ).fetchall()
    return found if matching.last is None else found[::-1]


def _chunk(connection: sqlite3.Connection, *, start: int, end: int) -> list[Row]:
    return connection.execute(f"{_SELECT} seq BETWEEN ? AND ? ORDER BY seq LIMIT ?", (start, end, CHUNK)).fetchall()


def _past_the_head(connection: sqlite3.Connection) -> int | None:
    seq: int | None = connection.execute(
        "SELECT min(seq) FROM audit WHERE seq > (SELECT seq FROM audit_head)"
    ).fetchone()[0]
    return seq
