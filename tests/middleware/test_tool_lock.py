"""Calls that must not overlap wait for each other: those of one tool, with the credentials of one owner."""

from dataclasses import replace
from typing import Any

import anyio
import pytest

from toolpost import Keyed, Plugin
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId, CallId
from toolpost.fairness import Callers, Shares
from toolpost.middleware.call import Call
from toolpost.middleware.tool_lock import ToolLock
from toolpost.providers.functions import FunctionProvider

pytestmark = pytest.mark.anyio

plugin = Plugin("p")


@plugin.tool(concurrency="serial")
def serial() -> str:
    """Run alone."""
    return ""


@plugin.tool(concurrency=Keyed("account"))
def keyed(account: str) -> str:
    """Run alone for each account."""
    return account


@pytest.mark.parametrize("tool", ["p__serial", "p__keyed"])
async def test_calls_wait_for_those_of_the_same_owner_alone(tool: str) -> None:
    callers = Callers()
    lock = ToolLock(Shares("calls", 10, callers), callers, waiting_limit=10)
    provided = FunctionProvider(plugin.name, plugin.toolpost_tools()).tools[tool]  # type: ignore[index]
    running: list[str] = []
    released = anyio.Event()

    async def proceed(call: Call) -> Any:
        running.append(call.tool.owner)
        await released.wait()

    async def call(owner: str) -> None:
        await lock(
            Call(
                call_id=CallId(owner),
                trace_id=None,
                caller=Caller(id=CallerId(owner), transport="http"),
                tool=replace(provided, owner=owner),
                arguments={"account": "main"},
            ),
            proceed,
        )

    async with anyio.create_task_group() as tasks:
        for owner in ("ann", "ann", "bob"):
            tasks.start_soon(call, owner)
        await anyio.wait_all_tasks_blocked()
        together = sorted(running)
        released.set()

    assert together == ["ann", "bob"]
    assert sorted(running) == ["ann", "ann", "bob"]
