"""The rows of a PostgreSQL store, as they are."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import GatewayError
from toolpost.store.postgres.connection import Connection
from toolpost.store.tables import AUDIT, Key, Row, Table

if TYPE_CHECKING:
    from toolpost.store.postgres.store import PostgresStore


class PostgresTables:
    """Read and written through the pool."""

    def __init__(self, store: "PostgresStore") -> None:
        self._store = store

    async def chunk(self, table: Table, after: Key | None, limit: int) -> list[Row]:
        """Return rows in the order of their keys, past `after`."""
        where, values = _past(table, after)
        return await self._rows(f"{_select(table)} {where} ORDER BY {_key(table)} LIMIT {limit}", values)

    async def up_to(self, table: Table, after: Key | None, last: Key | None) -> list[Row]:
        """Return rows in the order of their keys, past `after`, up to and with `last`, or all of the rest."""
        where, values = _past(table, after)
        if last is not None:
            where += f" AND ({_key(table)}) <= ({_marks(table.key, start=len(values) + 1)})"
            values = (*values, *last)
        return await self._rows(f"{_select(table)} {where} ORDER BY {_key(table)}", values)

    async def count(self, table: Table) -> int:
        """Return how many rows there are."""
        rows = await self._rows(f"SELECT count(*) FROM {table.name}", ())  # noqa: S608 - constants
        return int(rows[0][0])

    async def mend(self, table: Table, *, gone: Sequence[Key], rows: Sequence[Row]) -> None:
        """Remove some rows and write others, new or not, in one transaction."""
        where = " AND ".join(f"{column} = ${n}" for n, column in enumerate(table.key, start=1))
        rest = table.columns[len(table.key) :]
        kept = ", ".join(f"{column} = excluded.{column}" for column in rest)
        change = f"UPDATE SET {kept}" if kept else "NOTHING"

        async def job(connection: Connection) -> None:
            await connection.executemany(f"DELETE FROM {table.name} WHERE {where}", gone)  # noqa: S608 - constants
            await connection.executemany(f"{_insert(table)} ON CONFLICT ({_key(table)}) DO {change}", rows)

        await self._store.write(job, repeatable=True)

    async def extend_audit(self, rows: Sequence[Row]) -> None:
        """Add the next records of a chain, and move its head, in one transaction."""
        first, last = rows[0], rows[-1]

        async def job(connection: Connection) -> None:
            if await connection.fetchval("SELECT hash FROM audit WHERE seq = $1", last[0]) == last[-1]:
                return  # it was kept the first time
            moved = "UPDATE audit_head SET seq = $1, hash = $2 WHERE seq = $3"
            if await connection.execute(moved, last[0], last[-1], first[0] - 1) != "UPDATE 1":
                raise GatewayError("the audit was written to while it was copied")
            await connection.executemany(_insert(AUDIT), rows)

        await self._store.write(job, repeatable=True)

    async def _rows(self, query: str, values: Sequence[Any]) -> list[Row]:
        return [tuple(row) for row in await self._store.read(lambda connection: connection.fetch(query, *values))]


def _select(table: Table) -> str:
    return f"SELECT {', '.join(table.columns)} FROM {table.name}"  # noqa: S608 - constants


def _insert(table: Table) -> str:
    return f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({_marks(table.columns)})"  # noqa: S608 - constants


def _past(table: Table, after: Key | None) -> tuple[str, tuple[Any, ...]]:
    return ("WHERE true", ()) if after is None else (f"WHERE ({_key(table)}) > ({_marks(table.key)})", after)


def _key(table: Table) -> str:
    return ", ".join(table.key)


def _marks(columns: Sequence[str], *, start: int = 1) -> str:
    return ", ".join(f"${n}" for n, _ in enumerate(columns, start=start))
