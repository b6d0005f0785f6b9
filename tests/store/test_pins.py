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
        await store.pins.add("maps", {"maps__lookup": {"v": 2}}, drop=["maps__lookup"])

        assert await store.pins.of_server("maps") == {"maps__lookup": {"v": 2}, "maps__other": {"v": 1}}


async def test_the_pins_that_were_seen_last_stay(url: str) -> None:
    async with open_store(url) as store:
        await store.pins.add("maps", {"maps__first": {"v": 1}, "maps__second": {"v": 1}})
        await store.pins.add("maps", {"maps__third": {"v": 1}})
        await store.pins.add("roads", {"roads__first": {"v": 1}})
        await store.pins.add("maps", {}, seen=["maps__first"])

        assert [*await store.pins.of_server("maps")] == ["maps__second", "maps__third", "maps__first"]
        await store.pins.trim("maps", 2)
        assert [*await store.pins.of_server("maps")] == ["maps__third", "maps__first"]
        assert [*await store.pins.of_server("roads")] == ["roads__first"]


async def test_the_pins_of_some_tools(url: str) -> None:
    async with open_store(url) as store:
        await store.pins.add("maps", {f"maps__{number}": {"v": number} for number in range(1_200)})

        wanted = [f"maps__{number}" for number in range(0, 1_200, 2)]
        found = await store.pins.of_server("maps", [*wanted, "maps__unknown"])
        assert found == {name: {"v": int(name.removeprefix("maps__"))} for name in wanted}
