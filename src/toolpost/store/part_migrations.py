"""Tables of parts: numbered migrations of their own, forward only, each applied once and recorded under the part's name.

They are applied in one script when a part opens. The tables of the oldest bundled parts are among the migrations of the kernel
(`migrate.py`), where they were before parts could have their own.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Final

from toolpost.contracts.errors import CapabilityMissing
from toolpost.store.base import Store, open_store
from toolpost.store.migrate import Kind, Migration, read_migrations, split_statements
from toolpost.store.scripts import NOW, Script, Statement, lock_name
from toolpost.store.urls import PostgresLocation, parse_store_url

_CREATE_TABLE: Final = Statement(
    "CREATE TABLE IF NOT EXISTS part_migrations (part TEXT NOT NULL, number BIGINT NOT NULL, name TEXT NOT NULL,"
    " digest TEXT NOT NULL, applied_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (part, number))"
)
_APPLIED: Final = "SELECT number, digest FROM part_migrations WHERE part = ?1"
_RECORD: Final = "INSERT INTO part_migrations (part, number, name, digest, applied_at) VALUES (?1, ?2, ?3, ?4, ?5)"


@asynccontextmanager
async def open_part_store(url: str, part: str, package: str) -> AsyncIterator[Store]:
    """Open a store and bring the tables of one part up to date: for a command that uses them without a gateway."""
    async with open_store(url) as store:
        await migrate_part(store, url, part, package)
        yield store


async def migrate_part(store: Store, url: str, part: str, package: str) -> None:
    """Apply the missing migrations of a part, all of them or none.

    `package` has the folders `sqlite` and `postgres`. Raises `CapabilityMissing` if a newer version of the part, or another part
    of the same name, has created the tables.
    """
    kind: Kind = "postgres" if isinstance(parse_store_url(url), PostgresLocation) else "sqlite"
    known = read_migrations(files(package).joinpath(kind))
    await store.scripts.run(lambda: _migrate(part, known))


def _migrate(part: str, known: Sequence[Migration]) -> Script[None]:
    # Two gateways that start together must not both find a step missing.
    yield lock_name("migrations of parts")
    yield _CREATE_TABLE
    applied = {int(row[0]): str(row[1]) for row in (yield Statement(_APPLIED, (part,)))}
    _check_applied(part, applied, known)
    ((now,),) = yield NOW
    for step in known:
        if step.number not in applied:
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
