"""Batches of audit entries in PostgreSQL: one chain, continued by every gateway that shares the database.

The record of a batch must follow the head of the chain, which another gateway may move at any time. To lock the head, read it,
write and commit is four round trips. So a gateway guesses that the head is where it left it, and sends one statement that does
nothing unless that is true: one round trip, and one commit.

    gateway A wrote up to 41 and has entries x, y:
        UPDATE audit_head SET seq = 43 … WHERE seq = 41   -- and INSERT 42, 43 only if that moved the head
    if gateway B has written 42 before, nothing happens; A then locks the head and appends x, y as 43 and 44.

If the connection is lost during the commit, it is unknown whether the batch was kept. Its records are then searched by the seqs
and hashes that were tried, under the lock on the head: a statement that still runs either moved the head before (the batch is
found) or finds the head moved (it does nothing). So no entry is lost, and none is there twice. See docs/decisions/0024.
"""

import time
from collections.abc import Sequence
from typing import Final

from toolpost.base.ids import Digest
from toolpost.contracts.errors import GatewayError
from toolpost.metrics import Durations
from toolpost.store.chain import COLUMNS, Row, Values, link_entries
from toolpost.store.postgres.connection import (
    Connection,
    Database,
    ReconnectingConnection,
    escape,
    is_transient,
    retry_transient,
)

Head = tuple[int, Digest]

SHARED_BATCHES: Final = 32
"""How many batches take the lock first after a wrong guess: while another gateway writes, the next guess is wrong as well."""

_TYPES: Final = {"seq": "bigint", "schema_version": "bigint", "duration_ms": "float8"}
_TEXTS: Final = [column not in _TYPES for column in COLUMNS]
_ARRAYS: Final = ", ".join(f"${n}::{_TYPES.get(column, 'text')}[]" for n, column in enumerate(COLUMNS, start=5))
# One statement, so one round trip and one commit: it does nothing unless the head is where this gateway left it.
_EXTEND: Final = f"""
WITH moved AS (UPDATE audit_head SET seq = $1, hash = $2 WHERE seq = $3 AND hash = $4 RETURNING one)
INSERT INTO audit ({", ".join(COLUMNS)})
SELECT * FROM unnest({_ARRAYS}) WHERE EXISTS (SELECT one FROM moved)
"""  # noqa: S608 - constants
_HEAD: Final = "SELECT seq, hash FROM audit_head"


class ChainWriter:
    """Appends batches to the chain, one at a time."""

    def __init__(self, database: Database, connection: ReconnectingConnection, commits: Durations) -> None:
        self._commits = commits
        self._database = database
        self._connection = connection
        self._head: Head | None = None
        """The head as this gateway left it; None if that is not known."""
        self._locked_batches = 0
        """How many batches are still to take the lock first."""

    async def write(self, entries: Sequence[Values]) -> None:
        """Commit a batch, all of it, once."""
        tried: list[Head] = []
        began = time.monotonic()
        await retry_transient(lambda: self._attempt(entries, tried), self._database)
        self._commits.observe(time.monotonic() - began)

    async def _attempt(self, entries: Sequence[Values], tried: list[Head]) -> None:
        connection = await self._connection.open()
        try:
            if tried or not await self._write_guessing(connection, entries, tried):
                await self._write_locked(connection, entries, tried)
        except BaseException as error:
            self._head = None
            # An answer may still arrive on the connection. A refused entry leaves it usable.
            if is_transient(error) or not isinstance(error, Exception):
                self._connection.drop()
            raise

    async def _write_guessing(self, connection: Connection, entries: Sequence[Values], tried: list[Head]) -> bool:
        """Write in one round trip; False, with nothing written, if another gateway has written since."""
        self._locked_batches = max(0, self._locked_batches - 1)
        if self._head is None or self._locked_batches:
            return False
        rows = link_entries(entries, seq=self._head[0], previous=self._head[1])
        if await _extend(connection, self._head, rows, tried):
            self._head = tried[-1]
            return True
        tried.clear()  # nothing was written, and that is certain
        self._locked_batches = SHARED_BATCHES
        return False

    async def _write_locked(self, connection: Connection, entries: Sequence[Values], tried: list[Head]) -> None:
        """Write under the lock on the head; what was tried before a connection was lost may have been written already."""
        async with connection.transaction():
            head = await connection.fetchrow(f"{_HEAD} FOR UPDATE")
            if head is None:
                raise GatewayError(
                    "the head of the audit chain is missing", hint="run `toolpost audit verify` to list the rest"
                )
            self._head = (head[0], head[1])
            for seq, record_hash in tried:
                if await connection.fetchval("SELECT hash FROM audit WHERE seq = $1", seq) == record_hash:
                    return
            rows = link_entries(entries, seq=self._head[0], previous=self._head[1])
            if not await _extend(connection, self._head, rows, tried):
                raise GatewayError("the audit's head was moved while it was locked")
        self._head = tried[-1]


async def _extend(connection: Connection, head: Head, rows: list[Row], tried: list[Head]) -> bool:
    last: Head = (rows[-1][0], rows[-1][-1])
    columns = [
        [None if value is None else escape(value) for value in column] if is_text else list(column)
        for is_text, column in zip(_TEXTS, zip(*rows, strict=True), strict=True)
    ]
    tried.append(last)
    status = await connection.execute(_EXTEND, *last, *head, *columns)
    return status != "INSERT 0 0"
