"""Whole rows of any table, read and written as they are, for copying a store."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from toolpost.contracts.errors import GatewayError
from toolpost.store.scripts import Many, Row, Script, Statement, TableAccess, change, marks, reads, writes

Key = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table, and the columns of its primary key."""

    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    """All columns, those of the key first."""
    identity: str | None = None
    """The column whose values PostgreSQL makes itself (`GENERATED … AS IDENTITY`), if there is one."""

    def key_of(self, row: Row) -> Key:
        return row[: len(self.key)]


class Tables(TableAccess):
    """Reads and writes rows of all tables of a store."""

    @reads
    def chunk(self, table: Table, after: Key | None, limit: int) -> Script[list[Row]]:
        """Return rows in the order of their keys, past `after`, at most `limit`."""
        return (yield from _select(table, after, None, limit))

    @reads
    def up_to(self, table: Table, after: Key | None, last: Key | None) -> Script[list[Row]]:
        """Return rows in the order of their keys, past `after`, up to `last` inclusive; None is the end of the table."""
        return (yield from _select(table, after, last, None))

    @reads
    def count(self, table: Table) -> Script[int]:
        ((count,),) = yield Statement(f"SELECT count(*) FROM {table.name}")  # noqa: S608 - constants
        return int(count)

    @writes(durable=False)
    def write(self, table: Table, *, deleted: Sequence[Key], rows: Sequence[Row]) -> Script[None]:
        """Delete some rows and insert or update others, in one transaction."""
        this = " AND ".join(f"{column} = ?{number}" for number, column in enumerate(table.key, start=1))
        changed = ", ".join(f"{column} = excluded.{column}" for column in table.columns[len(table.key) :])
        instead = f"UPDATE SET {changed}" if changed else "NOTHING"
        yield Many(f"DELETE FROM {table.name} WHERE {this}", deleted)  # noqa: S608 - constants
        yield Many(f"{_insert(table)} ON CONFLICT ({', '.join(table.key)}) DO {instead}", rows)
        if table.identity is not None and rows:
            # Else the next row that is added would get a number that was copied.
            newest = f"(SELECT max({table.identity}) FROM {table.name})"  # noqa: S608 - constants
            yield Statement(f"SELECT setval(pg_get_serial_sequence('{table.name}', '{table.identity}'), {newest})")

    @writes(durable=False)
    def extend_audit(self, audit: Table, rows: Sequence[Row]) -> Script[None]:
        """Add the next records of a chain and move its head, in one transaction.

        Raises `GatewayError` if other records were added to the chain since it was read.
        """
        first, last = rows[0], rows[-1]
        known = yield Statement("SELECT hash FROM audit WHERE seq = ?1", (last[0],))
        if known and known[0][0] == last[-1]:
            return  # the script is run again, and was committed the first time
        head = (last[0], last[-1], first[0] - 1)
        if not (yield change("UPDATE audit_head SET seq = ?1, hash = ?2 WHERE seq = ?3", head)):
            raise GatewayError("the audit was written to while it was copied")
        yield Many(_insert(audit), rows)


def _select(table: Table, after: Key | None, last: Key | None, limit: int | None) -> Script[list[Row]]:
    key, width = ", ".join(table.key), len(table.key)
    conditions, values = ["true"], Key()
    if after is not None:
        conditions.append(f"({key}) > ({marks(width)})")
        values = after
    if last is not None:
        conditions.append(f"({key}) <= ({marks(width, after=len(values))})")
        values = (*values, *last)
    end = "" if limit is None else f" LIMIT {limit}"
    columns = ", ".join(table.columns)
    sql = f"SELECT {columns} FROM {table.name} WHERE {' AND '.join(conditions)} ORDER BY {key}{end}"  # noqa: S608 - constants
    return (yield Statement(sql, values))


def _insert(table: Table) -> str:
    columns = ", ".join(table.columns)
    own = " OVERRIDING SYSTEM VALUE" if table.identity is not None else ""
    return f"INSERT INTO {table.name} ({columns}){own} VALUES ({marks(len(table.columns))})"  # noqa: S608 - constants
