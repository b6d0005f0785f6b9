"""Every failed call of every caller is in the log, with its ids and a level that says who caused it."""

import logging
from typing import Any

import pytest
from mcp import MCPError

from tests.upstreams.behind import gateway, hostile
from tests.ways import BEHAVIOURS, IN_MEMORY, QUICK_WAYS, Way, plugin_of

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
                if record.message in ("call failed", "tool failed")
            ]

    for what, (name, _, code, level) in FAILURES.items():
        assert len(logged[what]) == 1, (what, logged[what])
        found, fields = logged[what][0]
        assert (fields["tool"], fields["code"], found) == (name, code, level), what
        assert fields["caller"]
        assert what == "unknown tool" or (fields["call"] and fields["trace"])
