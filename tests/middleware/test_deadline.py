"""A call that was stopped is answered as stopped, even if its tool swallows the cancellation and returns a result."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import msgspec
import pytest

from tests.ways import ENVELOPE, QUICK_WAYS
from toolpost import Plugin
from toolpost.audit import AuditFilter
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.endpoints.duplex import ClientConnection
from toolpost.testing import error_of, open_test_app

pytestmark = pytest.mark.anyio


class DeafTool:
    """Returns a result when it is cancelled."""

    def __init__(self, *, timeout_s: float) -> None:
        self.started, self.returned = asyncio.Event(), 0
        self.plugin = Plugin("deaf")
        self.plugin.tool(name="work", timeout_s=timeout_s)(self._work)

    async def _work(self) -> str:
        """Work until it is cancelled, and return all the same."""
        self.started.set()
        try:
            await anyio.sleep(600)
        except asyncio.CancelledError:
            self.returned += 1
        return "done after all"


async def outcomes(app: Any) -> list[tuple[str, str | None]]:
    entries = await app.store.audit.entries(AuditFilter(), limit=10)
    return [(record.entry.outcome, record.entry.code) for record in entries]


async def test_a_result_after_the_deadline_is_a_timeout() -> None:
    deaf = DeafTool(timeout_s=0.2)
    async with open_test_app(deaf.plugin) as app, QUICK_WAYS[0].client_of(app) as client:
        answer = await client.call_tool("deaf__work", {})
        recorded = await outcomes(app)

    assert deaf.returned == 1
    assert error_of(answer)["code"] == "TOOL_TIMEOUT"
    assert error_of(answer)["timeoutMs"] == 200
    assert "done after all" not in str(answer)
    assert recorded == [("error", "TOOL_TIMEOUT")]


async def test_each_call_has_its_own_deadline() -> None:
    """All calls share one timer, which a later call with an earlier deadline moves."""
    plugin = Plugin("slow")
    ended: list[str] = []

    async def work() -> None:
        """Work for very long."""
        await anyio.sleep(600)

    for name, timeout_s in (("never", 600), ("last", 0.6), ("first", 0.2), ("second", 0.4)):
        plugin.tool(name=name, timeout_s=timeout_s)(work)
    async with open_test_app(plugin) as app, QUICK_WAYS[0].client_of(app) as client, anyio.create_task_group() as tasks:

        async def call(name: str) -> None:
            assert error_of(await client.call_tool(f"slow__{name}", {}))["code"] == "TOOL_TIMEOUT"
            ended.append(name)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as answered:
                tasks.start_soon(call, "never")
                for name in ("last", "first", "second"):
                    answered.start_soon(call, name)
        tasks.cancel_scope.cancel()

    assert ended == ["first", "second", "last"]


@pytest.mark.parametrize("sent", [7, "7"])
async def test_a_result_after_a_cancellation_is_cancelled(sent: Any) -> None:
    deaf = DeafTool(timeout_s=60)
    messages: list[Any] = []

    async def requests() -> AsyncIterator[bytes]:
        params = {"name": "deaf__work", "arguments": {}, "_meta": ENVELOPE}
        yield msgspec.json.encode({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params})
        await deaf.started.wait()
        yield msgspec.json.encode({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": sent}})

    async with open_test_app(deaf.plugin) as app:
        caller = Caller(id=CallerId("local"), transport="memory")
        connection = ClientConnection(
            app.call_handler, app.sdk, caller=caller, send=lambda raw: messages.append(msgspec.json.decode(raw))
        )
        with anyio.fail_after(60):
            await connection.serve(requests(), grace_s=30)
        recorded = await outcomes(app)

    assert deaf.returned == 1
    (answer,) = messages
    assert (answer["id"], answer["result"]["isError"]) == (7, True)
    assert answer["result"]["structuredContent"]["error"]["code"] == "CANCELLED"
    assert recorded == [("cancelled", "CANCELLED")]
