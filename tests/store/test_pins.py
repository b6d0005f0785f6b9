"""What was seen first of every tool stays what it was."""

import pytest

from toolpost.store import open_store

pytestmark = pytest.mark.anyio


async def test_the_first_definition_stays(url: str) -> None:
    async with open_store(url) as store:
        await store.pins.add("maps", {"maps__lookup": {"name": "maps__lookup"}, "maps__other": {"n": 1}})
        await store.pins.add("maps", {"maps__lookup": {"name": "another"}})
        await store.pins.add("roads", {"maps__lookup": {"name": "third"}})

        assert await store.pins.of_server("maps") == {"maps__lookup": {"name": "maps__lookup"}, "maps__other": {"n": 1}}
        assert await store.pins.of_server("roads") == {"maps__lookup": {"name": "third"}}
        assert await store.pins.of_server("nobody") == {}


async def test_what_is_dropped_may_be_pinned_anew(url: str) -> None:
    async with open_store(url) as store:
        await store.pins.add("maps", {"maps__lookup": {"v": 1}, "maps__other": {"v": 1}})
        await store.pins.drop("maps", ["maps__lookup"])
        await store.pins.add("maps", {"maps__lookup": {"v": 2}})

        assert await store.pins.of_server("maps") == {"maps__lookup": {"v": 2}, "maps__other": {"v": 1}}
