"""What the tests of the bus share: the stores they are held to."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.parts.bus.projects import Project
from toolpost.parts.bus import PART
from toolpost.parts.bus.service import Bus
from toolpost.store.part_migrations import open_part_store

OpenBus = Callable[..., AbstractAsyncContextManager[Bus]]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def open_bus(url: str) -> OpenBus:
    """Open the bus of one store; several of them are several servers."""

    @asynccontextmanager
    async def opened(**options: Any) -> AsyncIterator[Bus]:
        async with open_part_store(url, PART.name, PART.migrations) as store:
            bus = Bus(store, **options)
            async with bus.open_sweeping():
                yield bus

    return opened


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A repository whose bus server ends with the test."""
    made = Project(root=tmp_path / "repository", state=tmp_path / "state")
    try:
        yield made
    finally:
        made.close()
