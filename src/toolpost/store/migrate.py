"""Bring a database up to this code: numbered files, forward only, each applied once and remembered.

What a step is and which are missing is the same for both databases; `sqlite/migrate.py` and `postgres/migrate.py` apply them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Literal

from toolpost.contracts.errors import BadConfiguration

Kind = Literal["sqlite", "postgres"]


@dataclass(frozen=True, kw_only=True)
class Migration:
    """One step, `0001_audit.sql`."""

    number: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        """What the step was when it was applied."""
        return "sha256:" + sha256(self.sql.encode()).hexdigest()


def known_migrations(kind: Kind) -> list[Migration]:
    """Read the steps that come with this code, in order."""
    return read_migrations(files("toolpost.store").joinpath("migrations", kind))


def read_migrations(folder: Traversable) -> list[Migration]:
    """Read the steps of a folder, in order."""
    texts = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir() if file.name.endswith(".sql")}
    return [_migration(name, texts[name]) for name in sorted(texts)]


def _migration(file_name: str, sql: str) -> Migration:
    number, _, name = file_name.removesuffix(".sql").partition("_")
    return Migration(number=int(number), name=name, sql=sql)


def missing(applied: Mapping[int, str], known: Sequence[Migration]) -> list[Migration]:
    """Return the steps to be applied; refuse a database that this code did not make."""
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


def foreign(tables: Sequence[str]) -> BadConfiguration:
    """Return the error for a database with tables that Toolpost did not make."""
    shown = ", ".join(sorted(tables)[:3])
    return BadConfiguration(
        f"the database of the store has tables that Toolpost did not create ({shown})",
        hint="name a new file, another database or another schema",
    )
