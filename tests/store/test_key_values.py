"""What plugins keep stays, each caller's apart; of two who change one thing, one is told that the other was faster."""

import pytest

from toolpost.base.ids import CallerId
from toolpost.store import open_store
from toolpost.store.key_values import Item

pytestmark = pytest.mark.anyio

ADA, BOB = CallerId("ada"), CallerId("bob")


async def test_values_are_kept_for_each_plugin_and_caller(url: str) -> None:
    async with open_store(url) as store:
        await store.key_values.put("tasks", Item(owner=ADA, id="b", value={"n": 1}))
        await store.key_values.put("tasks", Item(owner=ADA, id="a", value={"n": "ünï"}))
        await store.key_values.put("tasks", Item(owner=BOB, id="a", value={"n": 3}))
        await store.key_values.put("other", Item(owner=ADA, id="a", value={"n": 4}))
        await store.key_values.put("tasks", Item(owner=ADA, id="b", value={"n": 5}))

        assert [(i.id, i.value["n"]) for i in await store.key_values.items("tasks", ADA)] == [("a", "ünï"), ("b", 5)]
        assert [(i.owner, i.id) for i in await store.key_values.items("tasks")] == [(ADA, "a"), (ADA, "b"), (BOB, "a")]
        assert await store.key_values.find("tasks", BOB, "b") is None


async def test_a_value_is_swapped_once(url: str) -> None:
    before = Item(owner=ADA, id="a", value={"b": 1, "a": 2})
    async with open_store(url) as store:
        await store.key_values.put("schedule", before)

        assert await store.key_values.swap("schedule", Item(owner=ADA, id="a", value={"a": 2, "b": 1}), {"n": 2})
        assert not await store.key_values.swap("schedule", before, {"n": 3})
        assert not await store.key_values.swap("schedule", before, None)
        assert await store.key_values.swap("schedule", Item(owner=ADA, id="a", value={"n": 2}), None)
        assert await store.key_values.items("schedule") == []
