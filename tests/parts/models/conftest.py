"""What the tests of models share: the stores they are held to, and an endpoint."""

from collections.abc import AsyncIterator

import pytest

from tests.parts.models.endpoints import FakeEndpoint, open_endpoint


@pytest.fixture
async def endpoint() -> AsyncIterator[FakeEndpoint]:
    async with open_endpoint() as opened:
        yield opened
