"""The tables of parts in a store, as the database itself describes them: no part has to list them to have them copied."""

from collections.abc import Sequence
from typing import Final

from toolpost.contracts.errors import BadConfiguration
from toolpost.store.base import Store
from toolpost.store.rows import Table
from toolpost.store.scripts import Row, Script, Statement
from toolpost.store.tables import AUDIT, KEYS, NOT_COPIED, TABLES

# The names of table and column, the position of the column in the primary key or 0, and whether PostgreSQL numbers it. Tables
# come in the order in which they were made, because one that refers to another is made after it; in a table the key comes
# first, as `Table` has it.
_SQLITE: Final = """
    SELECT m.name, c.name, c.pk, 0 FROM sqlite_schema m, pragma_table_info(m.name) c
    WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite@_%' ESCAPE '@' ORDER BY m.rowid, c.pk = 0, c.pk, c.cid
"""
_POSTGRES: Final = """
    SELECT t.relname::text, c.attname::text, coalesce(array_position(k.conkey, c.attnum), 0)::bigint,
        (c.attidentity <> '')::int::bigint
    FROM pg_class t JOIN pg_attribute c ON c.attrelid = t.oid AND c.attnum > 0 AND NOT c.attisdropped
    LEFT JOIN pg_constraint k ON k.conrelid = t.oid AND k.contype = 'p'
    WHERE t.relkind = 'r' AND t.relnamespace = current_schema()::regnamespace
    ORDER BY t.oid, coalesce(array_position(k.conkey, c.attnum), 0) = 0, array_position(k.conkey, c.attnum), c.attnum
"""

LEDGER: Final = "part_migrations"
_KERNEL: Final = NOT_COPIED | {AUDIT.name, KEYS.name, LEDGER, *(table.name for table in TABLES)}


async def find_part_tables(store: Store) -> list[Table]:
    """Return the tables that are not the kernel's own. Raises BadConfiguration for one without a primary key."""
    sql = _SQLITE if (await store.facts()).kind == "sqlite" else _POSTGRES
    columns: dict[str, list[Row]] = {}
    for row in await store.scripts.read(lambda: _select(sql)):
        columns.setdefault(row[0], []).append(row)
    return [_table_of(name, rows) for name, rows in columns.items() if name not in _KERNEL]


async def parts_with_tables(store: Store) -> list[str]:
    """Return the names of the parts whose migrations were applied to a store."""
    sql = _SQLITE if (await store.facts()).kind == "sqlite" else _POSTGRES
    if LEDGER not in {row[0] for row in await store.scripts.read(lambda: _select(sql))}:
        return []
    rows = await store.scripts.read(lambda: _select("SELECT DISTINCT part FROM part_migrations ORDER BY part"))
    return [row[0] for row in rows]


def _select(sql: str) -> Script[Sequence[Row]]:
    return (yield Statement(sql))


def _table_of(name: str, rows: Sequence[Row]) -> Table:
    key = tuple(column for _, column, position, _ in rows if position)
    if not key:
        raise BadConfiguration(
            f"the table `{name}` of a part has no primary key, so that its rows cannot be copied",
            hint="add one in a migration of the part",
        )
    identity = next((column for _, column, _, is_numbered in rows if is_numbered), None)
    return Table(name=name, key=key, columns=tuple(column for _, column, _, _ in rows), identity=identity)
