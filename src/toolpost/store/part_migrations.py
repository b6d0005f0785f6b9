"""Tables of parts: numbered steps of their own, forward only, each applied once and remembered under the part's name.

They are a script like any other transaction, applied when a part opens. The tables of the bundled parts are among the
kernel's own migrations (`migrate.py`), where they were before parts had any.
"""

import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Final

from toolpost.contracts.errors import CapabilityMissing
from toolpost.store.base import Store, open_store
from toolpost.store.migrate import Kind, Migration, read_migrations
from toolpost.store.scripts import NOW, Script, Statement, alone
from toolpost.store.urls import PostgresPlace, place_of

_LEDGER: Final = Statement(
    "CREATE TABLE IF NOT EXISTS part_migrations (part TEXT NOT NULL, number BIGINT NOT NULL, name TEXT NOT NULL,"
    " digest TEXT NOT NULL, applied_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (part, number))"
)
_APPLIED: Final = "SELECT number, digest FROM part_migrations WHERE part = ?1"
_REMEMBER: Final = "INSERT INTO part_migrations (part, number, name, digest, applied_at) VALUES (?1, ?2, ?3, ?4, ?5)"


@asynccontextmanager
async def open_part_store(url: str, part: str, package: str) -> AsyncIterator[Store]:
    """Open a store and bring the tables of one part up to date: for a command that uses them without a gateway."""
    async with open_store(url) as store:
        await migrate_part(store, url, part, package)
        yield store


async def migrate_part(store: Store, url: str, part: str, package: str) -> None:
    """Apply the steps of a part that are missing, all of them or none.

    `package` has the folders `sqlite` and `postgres`. Raises CapabilityMissing where a newer version of the part, or another
    one of the same name, has been at the store.
    """
    kind: Kind = "postgres" if isinstance(place_of(url), PostgresPlace) else "sqlite"
    known = read_migrations(files(package).joinpath(kind))
    await store.scripts.run(lambda: _migrate(part, known))


def _migrate(part: str, known: Sequence[Migration]) -> Script[None]:
    # Two gateways that start together must not both find a step missing.
    yield alone("migrations of parts")
    yield _LEDGER
    applied = {int(row[0]): str(row[1]) for row in (yield Statement(_APPLIED, (part,)))}
    _refuse_others(part, applied, known)
    ((now,),) = yield NOW
    for step in known:
        if step.number not in applied:
            for sql in _statements(step.sql):
                yield Statement(sql)
            yield Statement(_REMEMBER, (part, step.number, step.name, step.digest, now))


def _refuse_others(part: str, applied: dict[int, str], known: Sequence[Migration]) -> None:
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


def _statements(sql: str) -> Iterator[str]:
    """Split a step into statements: each ends with a semicolon at the end of a line."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if any(line.strip() and not line.strip().startswith("--") for line in statement.splitlines()):
        yield statement
