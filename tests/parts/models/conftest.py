"""What the tests of models share: the stores they are held to, and an endpoint."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.parts.models.endpoints import FakeEndpoint, open_endpoint
from tests.postgres import Postgres


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new place in each kind of store."""
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        return server.new_url()
    return f"sqlite:{tmp_path / 'store.db'}"


@pytest.fixture
async def endpoint() -> AsyncIterator[FakeEndpoint]:
    async with open_endpoint() as opened:
        yield opened
