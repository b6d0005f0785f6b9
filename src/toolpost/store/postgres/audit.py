"""The audit's room in a PostgreSQL store: one chain, continued by every gateway that shares the database."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

import anyio.to_thread

from toolpost.base.ids import Digest
from toolpost.contracts.errors import GatewayError
from toolpost.store.audit import AuditEntry, AuditFilter, AuditRecord, AuditVerdict
from toolpost.store.chain import FIELDS, ChainWalk, Row, linked, record_of
from toolpost.store.postgres.connection import Connection, Database, is_passing, persist
from toolpost.store.postgres.groups import Groups
from toolpost.store.postgres.link import Link
from toolpost.store.postgres.text import spelled

Result = TypeVar("Result")
Head = tuple[int, Digest]

CHUNK: Final = 1_000
SHARED_GROUPS: Final = 32
"""After another gateway got in between, so many groups take the lock first: guessing the head again would fail again."""

_COLUMNS: Final = ("seq", *FIELDS, "previous", "hash")
_TYPES: Final = {"seq": "bigint", "schema_version": "bigint", "duration_ms": "float8"}
_TEXTS: Final = [column not in _TYPES for column in _COLUMNS]
_ARRAYS: Final = ", ".join(f"${n}::{_TYPES.get(column, 'text')}[]" for n, column in enumerate(_COLUMNS, start=5))
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM audit WHERE "  # noqa: S608 - constants
# One statement, so one round trip and one commit: it does nothing unless the head is where we believe it to be.
_EXTEND: Final = f"""
WITH moved AS (UPDATE audit_head SET seq = $1, hash = $2 WHERE seq = $3 AND hash = $4 RETURNING one)
INSERT INTO audit ({", ".join(_COLUMNS)})
SELECT * FROM unnest({_ARRAYS}) WHERE EXISTS (SELECT one FROM moved)
"""  # noqa: S608 - constants
_CONDITIONS: Final = {
    "tool": "tool LIKE ${}",
    "caller": "caller = ${}",
    "code": "code = ${}",
    "outcome": "outcome = ${}",
    "since": "at_utc >= ${}",
    "until": "at_utc < ${}",
    "call_id": "call_id = ${}",
    "trace_id": "trace_id = ${}",
}
_HEAD: Final = "SELECT seq, hash FROM audit_head"
_LOWEST: Final = -(2**63)
_HIGHEST: Final = 2**63 - 1


class Read(Protocol):
    """Runs a job that only reads."""

    async def __call__(self, job: Callable[[Connection], Awaitable[Result]], /) -> Result:
        """Return what the job returns."""
        ...


class ChainWriter:
    """Continues the chain, group by group. A group whose fate is unknown is looked for before it is written again."""

    def __init__(self, database: Database, link: Link) -> None:
        self._database = database
        self._link = link
        self._head: Head | None = None
        self._shared = 0

    async def write(self, entries: Sequence[AuditEntry]) -> None:
        """Put a group on the record, all of it, once."""
        tried: list[Head] = []
        await persist(lambda: self._attempt(entries, tried), self._database)

    async def _attempt(self, entries: Sequence[AuditEntry], tried: list[Head]) -> None:
        connection = await self._link.connection()
        try:
            if tried or not await self._guessed(connection, entries, tried):
                await self._locked(connection, entries, tried)
        except BaseException as error:
            self._head = None
            # An answer may still be under way; a refused entry leaves the connection as it was.
            if is_passing(error) or not isinstance(error, Exception):
                self._link.drop()
            raise

    async def _guessed(self, connection: Connection, entries: Sequence[AuditEntry], tried: list[Head]) -> bool:
        """Write in one round trip, if nobody else has written since we did."""
        self._shared = max(0, self._shared - 1)
        if self._head is None or self._shared:
            return False
        rows = linked(entries, seq=self._head[0], previous=self._head[1])
        if await _extended(connection, self._head, rows, tried):
            self._head = tried[-1]
            return True
        tried.clear()  # nothing was written, and that is certain
        self._shared = SHARED_GROUPS
        return False

    async def _locked(self, connection: Connection, entries: Sequence[AuditEntry], tried: list[Head]) -> None:
        """Write behind whoever writes now; what was tried before a connection was lost may be there already."""
        async with connection.transaction():
            head = await connection.fetchrow(f"{_HEAD} FOR UPDATE")
            if head is None:
                raise GatewayError("the audit has lost its head", hint="verifying the audit says what is left of it")
            self._head = (head[0], head[1])
            for seq, seal in tried:
                if await connection.fetchval("SELECT hash FROM audit WHERE seq = $1", seq) == seal:
                    return
            rows = linked(entries, seq=self._head[0], previous=self._head[1])
            if not await _extended(connection, self._head, rows, tried):
                raise GatewayError("the audit's head was moved while it was locked")
        self._head = tried[-1]


class PostgresAuditLog:
    """The audit in two tables: the records, and the head of their chain."""

    def __init__(self, *, groups: Groups, read: Read) -> None:
        self._groups = groups
        self._read = read

    def append(self, entry: AuditEntry, *, alone: bool = False) -> Awaitable[None]:  # noqa: ARG002 (one group is one statement)
        """Put an entry on the record; done when it is committed."""
        return self._groups.submit(entry)

    def note(self, entry: AuditEntry) -> bool:  # noqa: ARG002 (every entry waits for its commit)
        """Leave it to `append`."""
        return False

    async def entries(self, matching: AuditFilter, *, after: int = 0, limit: int) -> list[AuditRecord]:
        """Return the records past `after` that match, oldest first, at most `limit`."""
        query, values = _query(matching, after, limit)
        rows = await self._read(lambda connection: connection.fetch(query, *values))
        records = [record_of(tuple(row)) for row in rows]
        return records if matching.last is None else records[::-1]

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
        while rows := await self._chunk(start, end):
            if verdict := await anyio.to_thread.run_sync(walk.follow, rows):
                return verdict
            start = walk.seq + 1
        verdict = walk.arrive(head)
        if verdict.is_intact and (stray := await self._read(_past_the_head)):
            return walk.broken(stray, "it was slipped in: the head does not know it")
        return verdict

    async def _chunk(self, start: int, end: int) -> list[Row]:
        query = f"{_SELECT} seq BETWEEN $1 AND $2 ORDER BY seq LIMIT {CHUNK}"
        rows = await self._read(lambda connection: connection.fetch(query, start, end))
        return [tuple(row) for row in rows]


async def _extended(connection: Connection, head: Head, rows: list[Row], tried: list[Head]) -> bool:
    last: Head = (rows[-1][0], rows[-1][-1])
    columns = [
        [None if value is None else spelled(value) for value in column] if is_text else list(column)
        for is_text, column in zip(_TEXTS, zip(*rows, strict=True), strict=True)
    ]
    tried.append(last)
    status = await connection.execute(_EXTEND, *last, *head, *columns)
    return status != "INSERT 0 0"


def _query(matching: AuditFilter, after: int, limit: int) -> tuple[str, list[Any]]:
    wanted = {name: value for name in _CONDITIONS if (value := getattr(matching, name)) is not None}
    if "tool" in wanted:
        wanted["tool"] = _like(wanted["tool"])
    conditions = [_CONDITIONS[name].format(n) for n, name in enumerate(wanted, start=2)]
    order = "ASC" if matching.last is None else "DESC"
    limit = limit if matching.last is None else min(limit, matching.last)
    where = " AND ".join(("seq > $1", *conditions))
    return f"{_SELECT} {where} ORDER BY seq {order} LIMIT {max(0, limit)}", [after, *wanted.values()]


def _like(glob: str) -> str:
    escaped = glob.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%").replace("?", "_")


async def _head(connection: Connection) -> Head | None:
    head = await connection.fetchrow(_HEAD)
    return None if head is None else (head[0], head[1])


async def _past_the_head(connection: Connection) -> int | None:
    seq: int | None = await connection.fetchval("SELECT min(seq) FROM audit WHERE seq > (SELECT seq FROM audit_head)")
    return seq
