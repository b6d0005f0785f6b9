"""The tools of the bus as a client sees them."""

from typing import Any

import anyio
import pytest
from mcp import Client

from tests.ways import IN_MEMORY, QUICK_WAYS, Way
from toolpost.app import open_app
from toolpost.parts.bus.definitions import parse_wait_s
from toolpost.parts.bus.service import Bus
from toolpost.parts.bus.tasks import WorkerName
from toolpost.parts.bus.workers import PollAnswer
from toolpost.testing import data_of, error_of

pytestmark = pytest.mark.anyio


async def asked(client: Client, tool: str, **arguments: Any) -> Any:
    return data_of(await client.call_tool(f"bus__{tool}", arguments))


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_planner_and_a_worker_meet(way: Way) -> None:
    async with open_app(IN_MEMORY) as app, way.client_of(app) as client:
        registered = await asked(client, "register_worker", name="z.ai1")
        submitted = await asked(client, "submit_task", bead_id="b-1", payload={"n": 1}, priority=1)
        polled = await asked(client, "poll_task", name="z.ai1")
        acked = await asked(client, "ack_task", name="z.ai1", bead_id="b-1", lease_token=polled["task"]["lease_token"])
        status = await asked(client, "get_status")
        done = await asked(client, "worker_done", bead_id="b-1", result=[1, 2])
        idle = await asked(client, "poll_task", name="z.ai1", timeout_ms=10)

    assert registered["worker"] == "z.ai1"
    assert submitted == {"bead_id": "b-1", "dispatched": True, "queued": False, "worker": "z.ai1"}
    assert polled["task"]["payload"] == {"n": 1}
    assert acked["attempt"] == 1
    assert status["workers"][0]["status"] == "executing"
    assert done == {"success": True, "bead_id": "b-1", "worker": "z.ai1"}
    assert idle == {"task": None, "timeout": True}


async def test_a_poll_may_ask_for_any_number_of_milliseconds(monkeypatch: Any) -> None:
    numbers = (-1e300, -5, 0, 0.5, 55_000.5, 10**9, 1e300)
    waits: list[float] = []
    poll = Bus.poll

    async def spin(bus: Bus, worker: WorkerName, wait_s: float, **options: Any) -> PollAnswer:
        waits.append(wait_s)
        return await poll(bus, worker, min(wait_s, 0.01), **options)

    monkeypatch.setattr(Bus, "poll", spin)
    async with open_app(IN_MEMORY) as app, QUICK_WAYS[0].client_of(app) as client:
        await asked(client, "register_worker", name="a")
        idle = [await asked(client, "poll_task", name="a", timeout_ms=number) for number in numbers]
        refused = error_of(await client.call_tool("bus__poll_task", {"name": "a", "timeout_ms": "5"}))

    assert idle == [{"task": None, "timeout": True}] * len(numbers)
    assert waits == [0, 0, 0, 0.0005, 55, 55, 55]
    assert parse_wait_s({"timeout_ms": 10**400}) == 55
    assert refused["code"] == "INVALID_PARAMS"


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_errors_are_errors(way: Way) -> None:
    async with open_app(IN_MEMORY) as app, way.client_of(app) as client:
        unknown = error_of(await client.call_tool("bus__poll_task", {"name": "nobody"}))
        nothing = error_of(await client.call_tool("bus__worker_done", {"bead_id": "x"}))
        nameless = error_of(await client.call_tool("bus__register_worker", {}))
        crooked = error_of(await client.call_tool("bus__register_worker", {"name": "; rm -rf /"}))

    assert [unknown["code"], nothing["code"]] == ["NOT_FOUND", "NOT_FOUND"]
    assert "register_worker" in unknown["hint"]
    assert [nameless["code"], crooked["code"]] == ["INVALID_PARAMS", "INVALID_PARAMS"]


@pytest.mark.wire
async def test_who_goes_away_during_a_poll_leaves_nothing_behind() -> None:
    way = QUICK_WAYS[-1]
    async with open_app(IN_MEMORY) as app, way.client_of(app) as client, way.client_of(app) as other:
        await asked(client, "register_worker", name="a")
        await asked(client, "register_worker", name="b")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asked, client, "poll_task")
            tasks.cancel_scope.cancel()
        with anyio.move_on_after(0.3):
            await client.call_tool("bus__poll_task", {"name": "a"})
        await asked(other, "submit_task", bead_id="t")
        polled = await asked(other, "poll_task", name="b")

    assert polled["task"]["bead_id"] == "t"


async def test_the_words_of_an_agent_are_never_taken_for_code() -> None:
    names = ["'; DROP TABLE bus_tasks;--", '"$(touch /tmp/x)`', "ünïcödé ☃ 日本", "-rf", "x" * 256]
    async with open_app(IN_MEMORY) as app, QUICK_WAYS[0].client_of(app) as client:

        async def refusal(tool: str, **arguments: Any) -> str:
            return str(error_of(await client.call_tool(f"bus__{tool}", arguments))["code"])

        for name in names:
            assert (await asked(client, "submit_task", bead_id=name))["bead_id"] == name
        refused = [await refusal("submit_task", bead_id=bad) for bad in ("", "a\nb", "\x00", "x" * 10_000)]
        crooked = [await refusal("register_worker", name=bad) for bad in ("a b", "a\nb", "-a", "ä", "a" * 65)]
        status = await asked(client, "get_status")

    assert status["queue"] == names
    assert set(refused) == set(crooked) == {"INVALID_PARAMS"}
