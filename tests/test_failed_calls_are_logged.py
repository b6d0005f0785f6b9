"""Every failed call of every caller is in the log, with its ids and a level that says who caused it."""

import logging
from typing import Any

import pytest
from mcp import MCPError

from tests.upstreams.behind import gateway, hostile
from tests.ways import BEHAVIOURS, IN_MEMORY, QUICK_WAYS, Way, plugin_of
from toolpost.middleware import Call, CheckedResult, fast_path
from toolpost.middleware.audit import AuditExit
from toolpost.middleware.fast_path import FastPath
from toolpost.middleware.interface import NextStep

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

FAILURES: dict[str, tuple[str, dict[str, Any], str, int]] = {
    "unknown tool": ("does__nope", {}, "INVALID_REQUEST", logging.INFO),
    "wrong arguments": ("does__echo", {"txt": "x"}, "INVALID_PARAMS", logging.INFO),
    "it raises": ("does__explode", {}, "HANDLER_ERROR", logging.WARNING),
    "it takes too long": ("does__block", {"seconds": 0.6}, "TOOL_TIMEOUT", logging.WARNING),
    "a server's own error": ("up__refuse", {}, "HANDLER_ERROR", logging.INFO),
    "a server lies": ("up__lie", {}, "OUTPUT_VALIDATION_FAILED", logging.WARNING),
    "a server crashes": ("up__crash", {}, "UPSTREAM_UNAVAILABLE", logging.WARNING),
}


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
@pytest.mark.parametrize("is_fast", [False, True])
async def test_an_is_error_of_a_server_is_logged_once_with_and_without_a_task(
    way: Way, is_fast: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_fast:
        monkeypatch.setattr(fast_path, "TASK_AFTER_S", 20.0)
    else:
        monkeypatch.setattr(FastPath, "start", lambda *_: False)
    caplog.set_level(logging.INFO)
    async with gateway(hostile(), way=way) as (app, client):
        await client.call_tool("up__echo", {"text": "started"})
        with_tasks = count_tasks(monkeypatch)
        for _ in range(3):
            assert (await client.call_tool("up__echo", {"text": "x", "fails": True})).is_error
        counted = app.gateway.metrics.calls.value("HANDLER_ERROR")

    logged = [record for record in caplog.records if record.message in ("call failed", "tool failed")]
    assert len(with_tasks) == (0 if is_fast else 3)
    assert counted == 3
    assert [(record.levelno, record.__dict__["fields"]["code"]) for record in logged] == [
        (logging.WARNING, "HANDLER_ERROR")
    ] * 3
    assert len({record.__dict__["fields"]["call"] for record in logged}) == 3


def count_tasks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the calls that pass the whole chain of steps."""
    names: list[str] = []
    audit = AuditExit.__call__

    async def note(self: AuditExit, call: Call, proceed: NextStep) -> CheckedResult:
        names.append(call.tool.contract.name)
        return await audit(self, call, proceed)

    monkeypatch.setattr(AuditExit, "__call__", note)
    return names


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_every_failed_call_is_logged_once(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    logged: dict[str, list[tuple[int, Any]]] = {}
    async with gateway(hostile(), way=way, config=IN_MEMORY, plugins=[plugin_of(BEHAVIOURS)]) as (_, client):
        for what, (name, arguments, _, _) in FAILURES.items():
            caplog.clear()
            try:
                answer = await client.call_tool(name, arguments)
                assert answer.is_error, what
            except MCPError:
                pass
            logged[what] = [
                (record.levelno, record.__dict__["fields"])
                for record in caplog.records
                if record.message in ("call failed", "tool failed", "unknown tool")
            ]

    for what, (name, _, code, level) in FAILURES.items():
        assert len(logged[what]) == 1, (what, logged[what])
        found, fields = logged[what][0]
        assert (fields["tool"], fields["code"], found) == (name, code, level), what
        assert fields["caller"]
        assert what == "unknown tool" or (fields["call"] and fields["trace"])
