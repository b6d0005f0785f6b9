"""What a store offers, and which kind of it a URL names."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolpost.contracts.errors import CapabilityMissing
from toolpost.store.audit import AuditLog
from toolpost.store.audit_values import AuditVerdict
from toolpost.store.key_values import KeyValueStore
from toolpost.store.keys import Keys
from toolpost.store.known_tools import KnownTools
from toolpost.store.pins import Pins
from toolpost.store.rows import Tables
from toolpost.store.scripts import Scripts
from toolpost.store.seen import SeenTools
from toolpost.store.threads import Threads
from toolpost.store.urls import MEMORY, PostgresPlace, SqlitePlace, place_of
from toolpost.store.wakeups import Wakeups

if TYPE_CHECKING:
    from toolpost.store.postgres.store import PostgresStore

POOL: Final = 8
RETRY_S: Final = 30.0


@dataclass(frozen=True, kw_only=True)
class StoreFacts:
    """What a store is, to be shown to a person."""

    url: str
    """Without its password."""
    kind: str
    version: str
    migration: int
    """The number of the newest that was applied."""
    size_bytes: int


class Store(ABC):
    """What a gateway keeps, in a database of either kind: `scripts`, `audit` and `wakeups` differ, the rest is built on them."""

    def __init__(self, *, scripts: Scripts, audit: AuditLog, wakeups: Wakeups) -> None:
        self.scripts = scripts
        self.audit = audit
        self.wakeups = wakeups
        self.keys = Keys(scripts)
        self.known_tools = KnownTools(scripts)
        self.pins = Pins(scripts)
        self.seen = SeenTools(scripts)
        self.threads = Threads(scripts)
        self.key_values = KeyValueStore(scripts)
        self.tables = Tables(scripts)

    @abstractmethod
    async def facts(self) -> StoreFacts:
        """Return what the store is and how large."""

    @abstractmethod
    async def aclose(self) -> None:
        """Commit what is queued, and close the database; a second time does nothing."""


@asynccontextmanager
async def open_store(
    url: str | Path, *, full: bool = False, pool: int = POOL, retry_s: float = RETRY_S
) -> AsyncGenerator[Store]:
    """Open the store that a URL names: `sqlite:path`, a plain path, `sqlite::memory:` or `postgresql://…`.

    With `full`, what was acknowledged survives a power cut; without it, a killed process. PostgreSQL is always full: `pool` is
    how many connections it may use, `retry_s` how long to wait for it while it is unreachable.
    """
    place = place_of(url)
    # Each kind is imported when it is opened: one that is not used need not be installed.
    if isinstance(place, PostgresPlace):
        opened: Store = await _postgres().open(place, pool=pool, retry_s=retry_s)
    else:
        from toolpost.store.sqlite.store import SqliteStore

        opened = await SqliteStore.open(place.path, full=full)
    try:
        yield opened
    finally:
        await opened.aclose()


async def store_exists(url: str | Path) -> bool:
    """Return whether there is a store, without creating one."""
    place = place_of(url)
    if isinstance(place, PostgresPlace):
        return await _postgres().exists(place)
    return _is_file(place.path)


async def verify_audit(url: str | Path) -> AuditVerdict:
    """Verify the audit of a store that exists; a SQLite file is not written to, not even by a migration."""
    place = place_of(url)
    if isinstance(place, SqlitePlace) and isinstance(place.path, Path):
        from toolpost.store.sqlite.verify import verify_file

        return await verify_file(place.path.expanduser())
    async with open_store(url) as store:
        return await store.audit.verify()


def _is_file(path: str | Path) -> bool:
    return path != MEMORY and Path(path).expanduser().exists()


def _postgres() -> "type[PostgresStore]":
    try:
        from toolpost.store.postgres.store import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise CapabilityMissing(
            "a store in PostgreSQL needs the package asyncpg, which is not installed",
            hint="pip install 'toolpost[postgres]'",
        ) from error
    return PostgresStore
