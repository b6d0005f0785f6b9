"""Servers whose answers are costly to read: a call fails with a reason, or passes, and the event loop stays with the others."""

import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.hostile.attacks import attack, slowness
from tests.upstreams.behind import gateway, text_of
from toolpost.upstreams.spec import ServerSpec

pytestmark = pytest.mark.wire

SERVER = Path(__file__).with_name("costly_server.py")
LOOP_S = 0.6
"""For 3 MB of a million values; what is guarded against took the loop a second and more."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    spec = ServerSpec(name="up", command=(sys.executable, "-S", "-E", str(SERVER)))
    async with gateway(spec) as (_, opened):
        assert text_of(await opened.call_tool("up__fine", {})) == "fine"
        yield opened


@attack("server", "answers a call with a million values, fields or questions", "the call fails with a reason, at once")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ("structured", "cannot be checked against its output schema: it holds more than 100,000 values"),
        ("refusal", "the server's error holds more than 50,000 values"),
        ("stray_fields", "a result with more than 65536 bytes beside its content"),
        ("stray_meta", "a result with more than 65536 bytes beside its content"),
        ("questions", "input_required"),
    ],
)
async def test_costly_results(client: Client, tool: str, reason: str) -> None:
    before = time.thread_time()
    try:
        told = str(await client.call_tool(f"up__{tool}", {}))
    except MCPError as refusal:
        told = str(refusal)
    spent_s = time.thread_time() - before

    assert reason in told
    assert spent_s < LOOP_S * slowness()
    assert text_of(await client.call_tool("up__fine", {})) == "fine"


@attack(
    "server", "sends notifications and requests of a million values, or a megabyte of lines", "they are passed over"
)
@pytest.mark.anyio
@pytest.mark.parametrize("tool", ["log", "question", "garbage"])
async def test_what_a_server_says_by_itself(client: Client, tool: str) -> None:
    before = time.thread_time()
    answer = text_of(await client.call_tool(f"up__{tool}", {}))
    spent_s = time.thread_time() - before

    assert answer == "fine"
    # A line has its price, and half a million of them are read between other work.
    assert spent_s < (LOOP_S if tool != "garbage" else 2.5) * slowness()
