"""The front door of the store: what it offers, and which implementation a URL means."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from toolpost.contracts.errors import BadConfiguration
from toolpost.store.audit import AuditLog
from toolpost.store.known_tools import KnownTools
from toolpost.store.seen import SeenTools


class Store(Protocol):
    """What is remembered, one room per tenant."""

    @property
    def audit(self) -> AuditLog:
        """The record of every call."""
        ...

    @property
    def known_tools(self) -> KnownTools:
        """The tools of each server, as they were last seen."""
        ...

    @property
    def seen(self) -> SeenTools:
        """What each session has been sent of the tools."""
        ...


@asynccontextmanager
async def open_store(url: str | Path, *, full: bool = False) -> AsyncGenerator[Store]:
    """Open the store that a URL names: `sqlite:path`, a plain path, or `sqlite::memory:`.

    With `full`, what was acknowledged outlives a power cut too; without, only the end of this process.
    """
    path = _sqlite_path(url)
    # Whoever runs another kind of store does not load this one.
    from toolpost.store.sqlite import SqliteStore

    store = await SqliteStore.open(path, full=full)
    try:
        yield store
    finally:
        await store.aclose()


def _sqlite_path(url: str | Path) -> str | Path:
    if isinstance(url, Path):
        return url
    if url.startswith(("postgresql:", "postgres:")):
        raise BadConfiguration(
            "PostgreSQL is not supported as a store yet",
            hint="use `sqlite:` and a path, for example `sqlite:.toolpost/store.db`",
        )
    path = url.removeprefix("sqlite:")
    if not path or "://" in path:
        raise BadConfiguration(
            "the store's URL names no store that is known",
            hint="use `sqlite:` and a path, for example `sqlite:.toolpost/store.db`",
        )
    return path if path == ":memory:" else Path(path)
