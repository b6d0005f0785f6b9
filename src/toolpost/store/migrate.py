"""Migrations: numbered SQL files, forward only, each applied once and recorded with its digest.

Which are missing is decided here for both databases; `sqlite/connection.py` and `postgres/store.py` apply them.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, Literal

from toolpost.contracts.errors import BadConfiguration, PluginFailed

Kind = Literal["sqlite", "postgres"]

_FILE_NAME: Final = re.compile(r"(\d{4})_(\w+)\.sql", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Migration:
    """One file, such as `0001_audit.sql`."""

    number: int
    name: str
    sql: str

    @property
    def file_name(self) -> str:
        return f"{self.number:04}_{self.name}.sql"

    @property
    def digest(self) -> str:
        """The digest of its SQL: a recorded one that differs shows that another migration was applied."""
        return "sha256:" + sha256(self.sql.encode()).hexdigest()


def list_migrations(kind: Kind) -> list[Migration]:
    """Read the migrations of the kernel, in order."""
    return read_migrations(files("toolpost.store").joinpath("migrations", kind))


def read_migrations(folder: Traversable) -> list[Migration]:
    """Read the migrations of a folder, in order. Raises `PluginFailed` for a file that is not named as they are."""
    texts = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir() if file.name.endswith(".sql")}
    found: dict[int, Migration] = {}
    for file_name in sorted(texts):
        if (parsed := _FILE_NAME.fullmatch(file_name)) is None:
            raise PluginFailed(f"`{file_name}` is no name of a migration: write `0001_name.sql`")
        migration = Migration(number=int(parsed[1]), name=parsed[2], sql=texts[file_name])
        if (other := found.setdefault(migration.number, migration)) is not migration:
            raise PluginFailed(
                f"`{other.file_name}` and `{file_name}` have one number: write the later one as a new step"
            )
    return list(found.values())


def find_missing(applied: Mapping[int, str], known: Sequence[Migration]) -> list[Migration]:
    """Return the migrations to apply; raises `BadConfiguration` for a database of a newer or an unreleased version."""
    if unknown := applied.keys() - {migration.number for migration in known}:
        raise BadConfiguration(
            f"the store was written by a newer Toolpost: it has migration {max(unknown)}",
            hint="upgrade Toolpost, or name another store",
        )
    for migration in known:
        if applied.get(migration.number, migration.digest) != migration.digest:
            raise BadConfiguration(
                f"the store was made by another migration {migration.number} ({migration.name}) than ours",
                hint="it comes from an unreleased Toolpost: use another store, or move this one away",
            )
    return [migration for migration in known if migration.number not in applied]


def make_foreign_tables(tables: Sequence[str]) -> BadConfiguration:
    """Return the error for a database with tables that Toolpost did not make."""
    shown = ", ".join(sorted(tables)[:3])
    return BadConfiguration(
        f"the database of the store has tables that Toolpost did not create ({shown})",
        hint="name a new file, another database or another schema",
    )


def split_statements(sql: str) -> Iterator[str]:
    """Split the SQL of a migration into statements: each ends with a semicolon at the end of a line."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if any(line.strip() and not line.strip().startswith("--") for line in statement.splitlines()):
        yield statement
