"""A secret is made once, and all who open the store have the same."""

import anyio
import pytest

from toolpost.store import open_store

pytestmark = pytest.mark.anyio


async def test_gateways_of_one_store_share_a_secret(url: str) -> None:
    found: list[bytes] = []
    async with open_store(url) as first, open_store(url) as second:

        async def ask(store: object) -> None:
            found.append(await store.keys.of("request state"))  # type: ignore[attr-defined]

        async with anyio.create_task_group() as tasks:
            for store in (first, second, first, second):
                tasks.start_soon(ask, store)
        other = await first.keys.of("another")
    async with open_store(url) as later:
        found.append(await later.keys.of("request state"))

    assert len(set(found)) == 1
    assert len(found[0]) == 32
    assert other != found[0]
