"""The front door of the store: what it offers, and which implementation a URL means."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from toolpost.contracts.errors import CapabilityMissing
from toolpost.store.audit import AuditLog
from toolpost.store.known_tools import KnownTools
from toolpost.store.seen import SeenTools
from toolpost.store.urls import PostgresPlace, place_of
from toolpost.store.wakeups import Wakeups


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
    def known_tools(self) -> KnownTools:
        """The tools of each server, as they were last seen."""
        ...

    @property
    def seen(self) -> SeenTools:
        """What each session has been sent of the tools."""
        ...


class OpenStore(Store, Protocol):
    """A store that somebody has to close."""

    async def aclose(self) -> None:
        """Commit all that waits, and let go."""
        ...


@asynccontextmanager
async def open_store(
    url: str | Path, *, full: bool = False, pool: int | None = None, retry_s: float | None = None
) -> AsyncGenerator[Store]:
    """Open the store that a URL names: `sqlite:path`, a plain path, `sqlite::memory:` or `postgresql://…`.

    With `full`, what was acknowledged outlives a power cut too; without, only the end of this process. PostgreSQL is always
    full; `pool` is how many connections it may use, `retry_s` how long it is waited for when it is away.
    """
    place = place_of(url)
    # Whoever runs another kind of store does not load this one.
    if isinstance(place, PostgresPlace):
        opened: OpenStore = await _opened_postgres(place, pool, retry_s)
    else:
        from toolpost.store.sqlite import SqliteStore

        opened = await SqliteStore.open(place.path, full=full)
    try:
        yield opened
    finally:
        await opened.aclose()


async def _opened_postgres(place: PostgresPlace, pool: int | None, retry_s: float | None) -> OpenStore:
    try:
        from toolpost.store.postgres import POOL, RETRY_S, PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise CapabilityMissing(
            "a store in PostgreSQL needs the package asyncpg, which is not installed",
            hint="pip install 'toolpost[postgres]'",
        ) from error
    return await PostgresStore.open(place, pool=pool or POOL, retry_s=RETRY_S if retry_s is None else retry_s)
