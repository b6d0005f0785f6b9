"""The rows of a SQLite store, as they are."""

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from toolpost.store.tables import AUDIT, Key, Row, Table

Job = Callable[[sqlite3.Connection], Any]


class SqliteTables:
    """Read beside the writer, written in its groups."""

    def __init__(self, *, write: Callable[[Job], Awaitable[Any]], read: Callable[[Job], Awaitable[Any]]) -> None:
        self._write = write
        self._read = read

    async def chunk(self, table: Table, after: Key | None, limit: int) -> list[Row]:
        """Return rows in the order of their keys, past `after`."""
        where, values = _past(table, after)
        return await self._rows(f"{_select(table)} {where} ORDER BY {_key(table)} LIMIT {limit}", values)

    async def up_to(self, table: Table, after: Key | None, last: Key | None) -> list[Row]:
        """Return rows in the order of their keys, past `after`, up to and with `last`, or all of the rest."""
        where, values = _past(table, after)
        if last is not None:
            where += f" AND ({_key(table)}) <= ({_marks(table.key)})"
            values = (*values, *last)
        return await self._rows(f"{_select(table)} {where} ORDER BY {_key(table)}", values)

    async def count(self, table: Table) -> int:
        """Return how many rows there are."""
        rows = await self._rows(f"SELECT count(*) FROM {table.name}", ())  # noqa: S608 - constants
        return int(rows[0][0])

    async def mend(self, table: Table, *, gone: Sequence[Key], rows: Sequence[Row]) -> None:
        """Remove some rows and write others, new or not, in one transaction."""
        where = " AND ".join(f"{column} = ?" for column in table.key)

        def job(connection: sqlite3.Connection) -> None:
            connection.executemany(f"DELETE FROM {table.name} WHERE {where}", gone)  # noqa: S608 - constants
            connection.executemany(_insert("INSERT OR REPLACE", table), rows)

        await self._write(job)

    async def extend_audit(self, rows: Sequence[Row]) -> None:
        """Add the next records of a chain, and move its head, in one transaction."""

        def job(connection: sqlite3.Connection) -> None:
            connection.executemany(_insert("INSERT", AUDIT), rows)
            connection.execute("UPDATE audit_head SET seq = ?, hash = ?", (rows[-1][0], rows[-1][-1]))

        await self._write(job)

    async def _rows(self, query: str, values: Sequence[Any]) -> list[Row]:
        found: list[Row] = await self._read(lambda connection: connection.execute(query, values).fetchall())
        return found


def _select(table: Table) -> str:
    return f"SELECT {', '.join(table.columns)} FROM {table.name}"  # noqa: S608 - constants


def _insert(verb: str, table: Table) -> str:
    return f"{verb} INTO {table.name} ({', '.join(table.columns)}) VALUES ({_marks(table.columns)})"


def _past(table: Table, after: Key | None) -> tuple[str, tuple[Any, ...]]:
    return ("WHERE true", ()) if after is None else (f"WHERE ({_key(table)}) > ({_marks(table.key)})", after)


def _key(table: Table) -> str:
    return ", ".join(table.key)


def _marks(columns: Sequence[str]) -> str:
    return ", ".join("?" * len(columns))
