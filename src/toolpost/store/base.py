"""`Store`, the interface of both databases, and `open_store`, which chooses one by its URL."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolpost.contracts.errors import CapabilityMissing
from toolpost.metrics import Durations
from toolpost.store.audit import AuditLog
from toolpost.store.audit_contents import AuditContents
from toolpost.store.callers import StoredCallers
from toolpost.store.credentials import CredentialRows
from toolpost.store.key_values import KeyValueStore
from toolpost.store.keys import Keys
from toolpost.store.known_tools import KnownTools, Pins
from toolpost.store.rows import Tables
from toolpost.store.scripts import Scripts
from toolpost.store.seen import SeenTools
from toolpost.store.urls import PostgresLocation, parse_store_url
from toolpost.store.verdicts import Verdicts
from toolpost.store.wakeups import Wakeups

if TYPE_CHECKING:
    from toolpost.store.postgres.store import PostgresStore

POOL: Final = 8
RETRY_S: Final = 30.0


@dataclass(frozen=True, kw_only=True)
class StoreFacts:
    """A description of a store, for people."""

    url: str
    """Without its password."""
    kind: str
    version: str
    migration: int
    """The number of the newest migration that was applied."""
    size_bytes: int


class Store(ABC):
    """An open database. `scripts`, `audit` and `wakeups` differ between the databases; the rest is built on them."""

    def __init__(self, *, scripts: Scripts, audit: AuditLog, wakeups: Wakeups, commits: Durations) -> None:
        self.commit_durations = commits
        """How long transactions took, those of the audit among them."""
        self.lost_calls = 0
        """Calls that a killed gateway had in flight, found when the store was opened."""
        self.scripts = scripts
        self.audit = audit
        self.audit_contents = AuditContents(scripts)
        self.wakeups = wakeups
        self.callers = StoredCallers(scripts)
        self.credentials = CredentialRows(scripts)
        self.keys = Keys(scripts)
        self.known_tools = KnownTools(scripts)
        self.pins = Pins(scripts)
        self.seen = SeenTools(scripts)
        self.key_values = KeyValueStore(scripts)
        self.tables = Tables(scripts)
        self.verdicts = Verdicts(scripts)

    @abstractmethod
    async def facts(self) -> StoreFacts:
        """Return what the store is and how large."""

    @abstractmethod
    async def aclose(self) -> None:
        """Commit what is queued, and close the database; a second time does nothing."""


@asynccontextmanager
async def open_store(
    url: str | Path, *, durable: bool = False, pool: int = POOL, retry_s: float = RETRY_S, journals: Path | None = None
) -> AsyncGenerator[Store]:
    """Open the store that a URL names: `sqlite:path`, a plain path, `sqlite::memory:` or `postgresql://…`.

    With `durable`, what was acknowledged survives a power cut; without it, a killed process. PostgreSQL is always durable: `pool`
    is how many connections it may use, `retry_s` how long to wait for it while it is unreachable, `journals` the folder in which
    calls in flight are journaled; SQLite has them beside its file.
    """
    location = parse_store_url(url)
    # Each kind is imported when it is opened: one that is not used need not be installed.
    if isinstance(location, PostgresLocation):
        opened: Store = await _load_postgres().open(location, pool=pool, retry_s=retry_s, journals=journals)
    else:
        from toolpost.store.sqlite.store import SqliteStore

        opened = await SqliteStore.open(location.path, durable=durable)
    try:
        yield opened
    finally:
        await opened.aclose()


async def store_exists(url: str | Path) -> bool:
    """Return whether there is a store, without creating one."""
    location = parse_store_url(url)
    if isinstance(location, PostgresLocation):
        return await _load_postgres().exists(location)
    return location.exists()


def _load_postgres() -> "type[PostgresStore]":
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
