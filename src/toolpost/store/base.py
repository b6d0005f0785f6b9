"""The front door of the store: what it offers, and which implementation a URL means."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from toolpost.contracts.errors import CapabilityMissing
from toolpost.store.audit import AuditLog, AuditVerdict
from toolpost.store.key_values import Shelf
from toolpost.store.keys import Keys
from toolpost.store.known_tools import KnownTools
from toolpost.store.pins import Pins
from toolpost.store.scripts import Scripts
from toolpost.store.seen import SeenTools
from toolpost.store.tables import Tables
from toolpost.store.threads import Threads
from toolpost.store.urls import MEMORY, PostgresPlace, SqlitePlace, place_of
from toolpost.store.wakeups import Wakeups

if TYPE_CHECKING:
    from toolpost.store.postgres.store import PostgresStore

POOL: Final = 8
RETRY_S: Final = 30.0


@dataclass(frozen=True, kw_only=True)
class StoreFacts:
    """What a store is, for a person."""

    url: str
    """Without what is secret in it."""
    kind: str
    version: str
    migration: int
    """The newest that was applied."""
    size_bytes: int


class Store(Protocol):
    """What is remembered, one room per tenant."""

    @property
    def audit(self) -> AuditLog:
        """The record of every call."""
        ...

    @property
    def wakeups(self) -> Wakeups:
        """Who waits for something to happen here, is told."""
        ...

    @property
    def keys(self) -> Keys:
        """Secrets that gateways of this store share."""
        ...

    @property
    def known_tools(self) -> KnownTools:
        """The tools of each server, as they were last seen."""
        ...

    @property
    def pins(self) -> Pins:
        """The tools of each server, as they were first seen."""
        ...

    @property
    def seen(self) -> SeenTools:
        """What each session has been sent of the tools."""
        ...

    @property
    def scripts(self) -> Scripts:
        """Transactions that are written once for every kind of store."""
        ...

    @property
    def threads(self) -> Threads:
        """Conversations, and what was said in them."""
        ...

    @property
    def shelf(self) -> Shelf:
        """What plugins keep for each caller."""
        ...

    @property
    def tables(self) -> Tables:
        """All rows as they are, for copying."""
        ...

    async def facts(self) -> StoreFacts:
        """Say what the store is and how large."""
        ...


class OpenStore(Store, Protocol):
    """A store that somebody has to close."""

    async def aclose(self) -> None:
        """Commit all that waits, and let go."""
        ...


@asynccontextmanager
async def open_store(
    url: str | Path, *, full: bool = False, pool: int = POOL, retry_s: float = RETRY_S
) -> AsyncGenerator[Store]:
    """Open the store that a URL names: `sqlite:path`, a plain path, `sqlite::memory:` or `postgresql://…`.

    With `full`, what was acknowledged outlives a power cut too; without, only the end of this process. PostgreSQL is always
    full; `pool` is how many connections it may use, `retry_s` how long it is waited for when it is away.
    """
    place = place_of(url)
    # Whoever runs another kind of store does not load this one.
    if isinstance(place, PostgresPlace):
        opened: OpenStore = await _postgres().open(place, pool=pool, retry_s=retry_s)
    else:
        from toolpost.store.sqlite.store import SqliteStore

        opened = await SqliteStore.open(place.path, full=full)
    try:
        yield opened
    finally:
        await opened.aclose()


async def store_exists(url: str | Path) -> bool:
    """Say whether there is a store, without making one."""
    place = place_of(url)
    if isinstance(place, PostgresPlace):
        return await _postgres().exists(place)
    return _is_file(place.path)


async def verify_audit(url: str | Path) -> AuditVerdict:
    """Verify the audit of a store that exists; a SQLite file is left as it is, whatever may be done to it."""
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
