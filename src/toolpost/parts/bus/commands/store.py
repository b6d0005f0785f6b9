"""The bus of a project, opened in this process for one command. It shares the store with the servers, which are woken by it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from toolpost.contracts.errors import NotFound
from toolpost.parts.bus.commands.project import load_project_config
from toolpost.parts.bus.part import make_bus
from toolpost.parts.bus.service import Bus
from toolpost.store import open_store, store_exists
from toolpost.store.urls import shown_url


@asynccontextmanager
async def open_bus(project: Path, *, make: bool = False) -> AsyncIterator[Bus]:
    """Open the bus of a project; with `make`, its store is created if it does not exist, else `NotFound` is raised."""
    config = load_project_config(project)
    if not make and not await store_exists(config.store_url):
        raise NotFound(
            f"There is no store at {shown_url(config.store_url)} yet, and so no task.",
            hint="`toolpost bus submit TASK` creates both; --project names another project",
        )
    async with open_store(config.store_url, pool=config.store.pool, retry_s=config.store.retry_s) as store:
        yield make_bus(config, store)
