"""Tables of parts: numbered migrations of their own, forward only, each applied once and recorded under the part's name.

They are applied in one script when a part opens. Which tables there are is read from the database itself, so that no part has to
list them to have them copied.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Final

from toolpost.contracts.errors import BadConfiguration, CapabilityMissing, GatewayError, PluginFailed, StoreUnavailable
from toolpost.store.base import POOL, RETRY_S, Store, open_store
from toolpost.store.migrate import Kind, Migration, read_migrations, split_statements
from toolpost.store.rows import Table
from toolpost.store.scripts import NOW, Row, Script, Statement, lock_name
from toolpost.store.tables import AUDIT, KEYS, NOT_COPIED, TABLES
from toolpost.store.urls import PostgresLocation, parse_store_url

_APPLIED: Final = "SELECT number, digest FROM part_migrations WHERE part = ?1"
_RECORD: Final = "INSERT INTO part_migrations (part, number, name, digest, applied_at) VALUES (?1, ?2, ?3, ?4, ?5)"

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

_KERNEL: Final = NOT_COPIED | {AUDIT.name, KEYS.name, *(table.name for table in TABLES)}


@asynccontextmanager
async def open_part_store(
    url: str | Path, part: str, package: str | None, *, pool: int = POOL, retry_s: float = RETRY_S
) -> AsyncIterator[Store]:
    """Open a store and bring the tables of one part up to date: for a command that uses them without a gateway."""
    async with open_store(url, pool=pool, retry_s=retry_s) as store:
        if package is not None:
            await migrate_part(store, url, part, package)
        yield store


async def migrate_part(store: Store, url: str | Path, part: str, package: str) -> None:
    """Apply the missing migrations of a part, all of them or none.

    `package` has the folders `sqlite` and `postgres`. Raises `CapabilityMissing` if a newer version of the part, or another part
    of the same name, has created the tables, and `PluginFailed` for a migration that is not named as it must be, or fails.
    """
    known = _read(url, package)
    begun: list[Migration] = []
    try:
        await store.scripts.run(lambda: _migrate(part, known, begun))
    except StoreUnavailable:
        raise
    except GatewayError as error:
        if not begun:
            raise
        why = str(error.__cause__ or error.message).partition("\n")[0]
        raise PluginFailed(f"its migration `{begun[-1].file_name}` failed: {why}") from error


async def check_part(store: Store, url: str | Path, part: str, package: str) -> None:
    """Compare the migrations of a part with those that were applied, and raise as `migrate_part` does; applies none."""
    known = _read(url, package)
    _check_applied(part, await store.scripts.read(lambda: _read_applied(part)), known)


def _read(url: str | Path, package: str) -> list[Migration]:
    kind: Kind = "postgres" if isinstance(parse_store_url(url), PostgresLocation) else "sqlite"
    try:
        folder = files(package).joinpath(kind)
    except (ModuleNotFoundError, TypeError, ValueError) as error:
        raise PluginFailed(f"its migrations `{package}` are not a package: {error}") from error
    if not folder.is_dir():
        raise PluginFailed(f"its migrations `{package}` have no folder `{kind}`, for this kind of store")
    return read_migrations(folder)


def _read_applied(part: str) -> Script[dict[int, str]]:
    return {int(row[0]): str(row[1]) for row in (yield Statement(_APPLIED, (part,)))}


def _migrate(part: str, known: Sequence[Migration], begun: list[Migration]) -> Script[None]:
    """Append each step that is begun to `begun`: an error of the store does not say which it was."""
    # Two gateways that start together must not both find a step missing.
    yield lock_name("migrations of parts")
    _check_applied(part, applied := (yield from _read_applied(part)), known)
    ((now,),) = yield NOW
    for step in known:
        if step.number not in applied:
            begun.append(step)
            for sql in split_statements(step.sql):
                yield Statement(sql)
            yield Statement(_RECORD, (part, step.number, step.name, step.digest, now))


def _check_applied(part: str, applied: dict[int, str], known: Sequence[Migration]) -> None:
    if unknown := applied.keys() - {step.number for step in known}:
        raise CapabilityMissing(
            f"its tables were written by a newer version of it: the store has its migration {max(unknown)}.",
            hint=f"upgrade the package of the part `{part}`, or name another store",
        )
    for step in known:
        if applied.get(step.number, step.digest) != step.digest:
            raise CapabilityMissing(
                f"its tables were made by another migration {step.number} ({step.name}) than its own.",
                hint="a migration that was released is never changed: add another one, or name another store",
            )


async def find_part_tables(store: Store) -> list[Table]:
    """Return the tables that are not the kernel's own. Raises BadConfiguration for one without a primary key."""
    sql = _SQLITE if (await store.facts()).kind == "sqlite" else _POSTGRES
    columns: dict[str, list[Row]] = {}
    for row in await store.scripts.read(lambda: _select(sql)):
        columns.setdefault(row[0], []).append(row)
    return [_table_of(name, rows) for name, rows in columns.items() if name not in _KERNEL]


async def parts_with_tables(store: Store) -> list[str]:
    """Return the names of the parts whose migrations were applied to a store."""
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
