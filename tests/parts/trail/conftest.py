"""What the tests of the trail share: the stores they are held to."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from toolpost.parts.trail import PART
from toolpost.parts.trail.service import Trail
from toolpost.store import open_part_store

OpenTrail = Callable[[], AbstractAsyncContextManager[Trail]]


@pytest.fixture
def open_trail(url: str) -> OpenTrail:
    """Open the trail of one store; several of them are several gateways."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Trail]:
        async with open_part_store(url, PART.name, PART.migrations) as store:
            yield await Trail.open(store)

    return opened
