from collections.abc import AsyncIterator

import pytest

from tests.parts.openapi.fake_api import FakeApi, open_fake_api


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with open_fake_api() as opened:
        yield opened
