"""Each argument of each tool of the bus does something, as a client sees it: two workers and two tasks tell which was meant."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client

from tests.proofs import proves
from tests.ways import IN_MEMORY, QUICK_WAYS
from toolpost.app import open_app
from toolpost.testing import assert_each_argument_matters, data_of, error_of

pytestmark = pytest.mark.anyio


class Caller:
    """Somebody who uses the tools."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def ask(self, tool: str, **arguments: Any) -> Any:
        return data_of(await self.client.call_tool(f"bus__{tool}", arguments))

    async def refused(self, tool: str, **arguments: Any) -> str:
        return str(error_of(await self.client.call_tool(f"bus__{tool}", arguments))["code"])

    async def state_of(self, task: str) -> str:
        return str((await self.ask("get_task", bead_id=task))["state"])

    async def tasks_of_workers(self) -> dict[str, str | None]:
        workers = (await self.ask("get_status"))["workers"]
        return {one["name"]: one["current_task"] or one["pending_task"] for one in workers}

    async def work_on_two(self) -> dict[str, str]:
        """Have two workers do two tasks; returns the lease tokens by task."""
        tokens = {}
        for worker, task in (("w-1", "t-1"), ("w-2", "t-2")):
            await self.ask("register_worker", name=worker)
            await self.ask("submit_task", bead_id=task)
            held = (await self.ask("poll_task", name=worker))["task"]
            await self.ask("ack_task", name=worker, bead_id=task)
            tokens[held["bead_id"]] = held["lease_token"]
        return tokens


@asynccontextmanager
async def opened() -> AsyncIterator[Caller]:
    async with open_app(IN_MEMORY) as app, QUICK_WAYS[0].client_of(app) as client:
        yield Caller(client)


@proves("bus__submit_task", "bead_id", "priority", "depends_on", "dedupe_key", "payload")
@proves("bus__get_status")
async def test_submit_task() -> None:
    async with opened() as caller:
        await caller.ask("submit_task", bead_id="usual")
        await caller.ask("submit_task", bead_id="urgent", priority=0)
        queue = (await caller.ask("get_status"))["queue"]
        waits = await caller.ask("submit_task", bead_id="later", depends_on=["usual"])
        first = await caller.ask("submit_task", bead_id="first", dedupe_key="k")
        second = await caller.ask("submit_task", bead_id="second", dedupe_key="k")
        await caller.ask("submit_task", bead_id="loaded", payload={"n": [1]})
        payloads = [(await caller.ask("get_task", bead_id=task)).get("payload") for task in ("loaded", "usual")]

    assert queue == ["urgent", "usual"]
    assert waits["waits_for"] == ["usual"]
    assert (first["bead_id"], first.get("duplicate")) == ("first", None)
    assert (second["bead_id"], second["duplicate"]) == ("first", True)
    assert payloads == [{"n": [1]}, None]


@proves("bus__worker_done", "bead_id", "lease_token", "result")
@proves("bus__task_failed", "bead_id", "lease_token", "reason")
async def test_the_end_of_a_task() -> None:
    async with opened() as caller:
        tokens = await caller.work_on_two()
        stale = [
            await caller.refused("worker_done", bead_id="t-1", lease_token=tokens["t-2"]),
            await caller.refused("worker_done", bead_id="t-2", lease_token=tokens["t-1"]),
            await caller.refused("task_failed", bead_id="t-1", lease_token=tokens["t-2"], reason="x"),
        ]
        done = await caller.ask("worker_done", bead_id="t-1", lease_token=tokens["t-1"], result=[1])
        others = await caller.state_of("t-2")
        failed = await caller.ask("task_failed", bead_id="t-2", lease_token=tokens["t-2"], reason="no time")
        ends = [await caller.ask("get_task", bead_id=task) for task in ("t-1", "t-2")]

    assert stale == ["STALE_LEASE"] * 3
    assert (done["bead_id"], done["worker"], others) == ("t-1", "w-1", "running")
    assert (failed["bead_id"], failed["reason"]) == ("t-2", "no time")
    assert [(one["state"], one.get("result"), one.get("reason")) for one in ends] == [
        ("done", [1], None),
        ("blocked", None, "no time"),
    ]


@proves("bus__reset_worker", "worker_name")
async def test_reset_worker() -> None:
    async with opened() as caller:
        await caller.work_on_two()
        await caller.ask("submit_task", bead_id="next")  # so that w-2 gets another one than it had
        reset = await caller.ask("reset_worker", worker_name="w-2")
        states = [await caller.state_of(task) for task in ("t-1", "t-2")]
        idle = await caller.ask("reset_worker", worker_name="w-2")
        unknown = await caller.refused("reset_worker", worker_name="w-3")
        workers = await caller.tasks_of_workers()

    assert reset == {"success": True, "worker": "w-2", "previous_task": "t-2"}
    assert states == ["running", "queued"]
    assert idle["previous_task"] is None
    assert unknown == "NOT_FOUND"
    assert workers == {"w-1": "t-1", "w-2": None}


@proves("bus__retry_task", "bead_id")
async def test_retry_task() -> None:
    async with opened() as caller:
        await caller.work_on_two()
        taken = await caller.ask("retry_task", bead_id="t-2")
        while_running = [await caller.state_of(task) for task in ("t-1", "t-2")]
        for task in ("t-1", "t-2"):
            if task == "t-2":
                await caller.ask("poll_task", name=taken["worker"])
                await caller.ask("ack_task", name=taken["worker"], bead_id=task)
            await caller.ask("worker_done", bead_id=task, result=task)
        revived = await caller.ask("retry_task", bead_id="t-1")
        after = [await caller.ask("get_task", bead_id=task) for task in ("t-1", "t-2")]
        unknown = await caller.refused("retry_task", bead_id="t-3")

    assert (taken["bead_id"], taken["worker"], while_running) == ("t-2", "w-2", ["running", "offered"])
    assert (revived["bead_id"], revived["dispatched"]) == ("t-1", True)
    assert [(one["state"], one.get("result")) for one in after] == [("offered", None), ("done", "t-2")]
    assert unknown == "NOT_FOUND"


@proves("bus__register_worker", "name")
@proves("bus__poll_task", "name", "timeout_ms")
@proves("bus__ack_task", "name", "bead_id", "lease_token")
async def test_what_a_worker_says() -> None:
    async with opened() as caller:
        names = [(await caller.ask("register_worker", name=name))["worker"] for name in ("w-1", "w-2", "w-2")]
        began = time.monotonic()
        nothing = await caller.ask("poll_task", name="w-2", timeout_ms=300)
        waited_s = time.monotonic() - began
        await caller.ask("submit_task", bead_id="t-1")
        holder = next(name for name, task in (await caller.tasks_of_workers()).items() if task == "t-1")
        held = (await caller.ask("poll_task", name=holder))["task"]
        other = next(name for name in names if name != holder)
        codes = [
            await caller.refused("ack_task", name=other, bead_id="t-1"),
            await caller.refused("ack_task", name=holder, bead_id="t-2"),
            await caller.refused("ack_task", name=holder, bead_id="t-1", lease_token="another"),
            await caller.refused("poll_task", name="w-3"),
        ]
        begun = await caller.ask("ack_task", name=holder, bead_id="t-1", lease_token=held["lease_token"])
        elsewhere = await caller.ask("poll_task", name=other, timeout_ms=0)

    assert names == ["w-1", "w-2", "w-2-1"]
    assert (nothing["timeout"], 0.29 < waited_s < 20) == (True, True)
    assert codes == ["STALE_LEASE", "NOT_FOUND", "STALE_LEASE", "NOT_FOUND"]
    assert (begun["worker"], begun["bead_id"]) == (holder, "t-1")
    assert elsewhere["task"] is None


@proves("bus__get_task", "bead_id")
@proves("bus__wait_tasks", "bead_ids", "timeout_ms", "all")
@proves("bus__list_tasks", "state", "limit", "cursor")
async def test_what_a_planner_reads() -> None:
    async with opened() as caller:
        await caller.work_on_two()
        await caller.ask("worker_done", bead_id="t-1", result=1)
        await caller.ask("submit_task", bead_id="t-3")
        cursor = (await caller.ask("list_tasks", limit=1))["next_cursor"]
        await assert_each_argument_matters(
            caller.client, "bus__get_task", base={"bead_id": "t-1"}, changed={"bead_id": "t-2"}
        )
        await assert_each_argument_matters(
            caller.client,
            "bus__list_tasks",
            base={},
            changed={"state": "done", "limit": 2, "cursor": cursor},
            shown=lambda data: [task["bead_id"] for task in data["tasks"]],
        )
        base = {"bead_ids": ["t-1", "t-2"], "timeout_ms": 0}
        seconds = []
        for changed in ({}, {"timeout_ms": 300}, {"timeout_ms": 20_000, "all": False}):
            began = time.monotonic()
            answer = await caller.ask("wait_tasks", **base | changed)
            seconds.append((time.monotonic() - began, answer.get("timeout")))
        named = await caller.ask("wait_tasks", bead_ids=["t-1"])

    assert [timeout for _, timeout in seconds] == [True, True, None]
    assert seconds[1][0] > 0.29
    assert [(task["bead_id"], task["state"]) for task in named["tasks"]] == [("t-1", "done")]
