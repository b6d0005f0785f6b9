"""What the tests of large results share: the stores, and a gateway with limits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tests.ways import IN_MEMORY
from toolpost.app import App, open_app
from toolpost.parts.results import PART
from toolpost.parts.results.kept import KeptResults
from toolpost.parts.results.settings import RESULTS, TOKEN_BYTES, ResultSettings
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings
from toolpost.store import open_part_store

LIMIT = 2_000


@asynccontextmanager
async def open_kept(url: str, *, keep_s: float = 3600.0, limit_bytes: int = 10_000_000) -> AsyncIterator[KeptResults]:
    """Open the kept results of a store; several of them are several gateways."""
    async with open_part_store(url, PART.name, PART.migrations) as store:
        yield KeptResults(store, keep_s=keep_s, limit_bytes=limit_bytes)


def limited(config: Config = IN_MEMORY, *, url: str | None = None, limit_bytes: int = LIMIT, **settings: Any) -> Config:
    """Return a configuration with limits."""
    if url is not None:
        config = msgspec.structs.replace(config, store=StoreSettings(url=url))
    return RESULTS.put(config, ResultSettings(**({"limit_tokens": limit_bytes // TOKEN_BYTES} | settings)))


@asynccontextmanager
async def open_limited(config: Config, *references: Any, **options: Any) -> AsyncIterator[App]:
    """Open a gateway that serves these plugins and what reads their results."""
    async with open_app(config, plugins=references, bundled=False, **options) as app:
        yield app
