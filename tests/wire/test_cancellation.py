"""A call can be called off: by MCP's notification, by the older request, by hanging up. Its tree goes with it."""

import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from tests.hostile.attacks import attack
from tests.victims.family import NAMES
from tests.waiting import until
from tests.ways import BEHAVIOURS, ENVELOPE, IN_MEMORY, QUICK_WAYS, STATELESS, Way, plugin_of, stdio_peer
from toolpost.app import open_app, open_http
from toolpost.audit import AuditFilter
from toolpost.base.ids import META_KEY
from toolpost.testing import error_of

pytestmark = pytest.mark.wire

FAMILY = str(Path(__file__).parents[1] / "victims" / "family.py")


def cancel_request(request_id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": request_id}}


def cancelled(request_id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}


@pytest.mark.parametrize(("sent", "meant"), [(7, "7"), ("7", 7), (7, 7), ("x", "x")])
def test_the_older_cancellation_gets_one_terminal_answer(sent: Any, meant: Any, tmp_path: Path) -> None:
    with stdio_peer(BEHAVIOURS, cwd=tmp_path) as peer:
        peer.start("tools/call", {"name": "does__sleep", "arguments": {"seconds": 20}}, id=sent)
        peer.send(cancel_request(meant))
        peer.send(cancel_request(meant))
        answer = peer.receive()
        following = peer.call("does__echo", text="after")

    assert answer["id"] == sent
    assert answer["result"]["isError"] is True
    assert answer["result"]["structuredContent"]["error"]["code"] == "CANCELLED"
    assert following["result"]["structuredContent"]["data"] == "after"


def test_mcp_cancellation_takes_no_answer(tmp_path: Path) -> None:
    with stdio_peer(BEHAVIOURS, cwd=tmp_path) as peer:
        peer.start("tools/call", {"name": "does__sleep", "arguments": {"seconds": 20}}, id=1)
        peer.send(cancelled("1"))
        following = peer.call("does__echo", text="after")

    assert following["result"]["structuredContent"]["data"] == "after"


def test_cancelling_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    with stdio_peer(BEHAVIOURS, cwd=tmp_path) as peer:
        for message in (
            cancel_request(99),
            cancelled(99),
            cancel_request(None),
            {"jsonrpc": "2.0", "method": "$/cancelRequest"},
        ):
            peer.send(message)
        following = peer.call("does__echo", text="after")

    assert following["result"]["structuredContent"]["data"] == "after"


@pytest.mark.anyio
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_client_that_gives_up_cancels_its_call(way: Way) -> None:
    async with open_app(IN_MEMORY, plugins=[plugin_of(BEHAVIOURS)], bundled=False) as app:
        async with way.client_of(app) as client:
            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(client.call_tool, "does__sleep", {"seconds": 300})
                    while not app.gateway.in_flight:
                        await anyio.sleep(0.01)
                    tasks.cancel_scope.cancel()
                while app.gateway.in_flight:
                    await anyio.sleep(0.01)
        entries = await app.store.audit.entries(AuditFilter(), limit=10)

    assert [(record.entry.outcome, record.entry.code) for record in entries] == [("cancelled", "CANCELLED")]


def stateless_request(name: str, arguments: dict[str, Any], meta: dict[str, Any] | None = None) -> bytes:
    params = {"name": name, "arguments": arguments, "_meta": ENVELOPE | (meta or {})}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"accept: application/json, text/event-stream\r\nmcp-protocol-version: {STATELESS}\r\n"
        f"mcp-method: tools/call\r\nmcp-name: {name}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@attack(
    "caller",
    "starts commands and hangs up",
    "the call is cancelled, and its whole process tree is gone",
)
@pytest.mark.anyio
@pytest.mark.parametrize("token", [None, "tok"])
async def test_hanging_up_ends_the_call_and_its_tree(token: str | None, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    async with open_app(IN_MEMORY, plugins=[plugin_of(BEHAVIOURS)], bundled=False) as app, open_http(app) as url:
        port = int(url.rsplit(":", 1)[1].split("/")[0])
        command = [sys.executable, FAMILY, str(pids), "stay"]
        meta = {"progressToken": token} if token else {}
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(stateless_request("does__run", {"command": command}, meta))
            family = await everybody(pids)
            assert app.gateway.in_flight == 1
        await until(lambda: not app.gateway.in_flight)

        assert [pid for pid in family if psutil.pid_exists(pid)] == []


@pytest.mark.anyio
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
@pytest.mark.parametrize("tool", ["does__run_short", "does__run_from_thread"])
async def test_a_deadline_ends_the_whole_tree(way: Way, tool: str, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    async with way.client(BEHAVIOURS) as client:
        started = time.monotonic()
        # Without the site: it is up well within its two seconds, on a slow day too.
        command = [sys.executable, "-S", "-E", FAMILY, str(pids), "stay"]
        answer = await client.call_tool(tool, {"command": command})
        took_s = time.monotonic() - started
        family = [int(path.read_text()) for path in pids.iterdir() if not path.name.startswith(".")]
        await until(lambda: not any(psutil.pid_exists(pid) for pid in family))

    assert error_of(answer)["code"] == "TOOL_TIMEOUT"
    assert error_of(answer)["timeoutMs"] == 2000
    assert took_s < 30
    assert family


@attack(
    "operator",
    "kills the gateway with SIGKILL while commands run",
    "none of them survives",
)
def test_nothing_survives_a_server_that_was_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    with stdio_peer(BEHAVIOURS, cwd=tmp_path) as peer:
        params = {"name": "does__run", "arguments": {"command": [sys.executable, FAMILY, str(pids), "stay"]}}
        peer.start("tools/call", params, id=1)
        family = anyio.run(everybody, pids)
        peer.process.kill()
        until = time.monotonic() + 30
        while any(psutil.pid_exists(pid) for pid in family) and time.monotonic() < until:
            time.sleep(0.02)
        alive = [pid for pid in family if psutil.pid_exists(pid)]

    assert alive == []


def test_the_call_id_is_in_the_answer(tmp_path: Path) -> None:
    with stdio_peer(BEHAVIOURS, cwd=tmp_path) as peer:
        answer = peer.call("does__explode")

    facts = answer["result"]["_meta"][META_KEY]
    assert facts["code"] == "HANDLER_ERROR"
    assert facts["callId"]


async def everybody(folder: Path) -> list[int]:
    """Wait until the whole family has written down its pids."""
    await until(lambda: all((folder / name).exists() for name in NAMES))
    return [int((folder / name).read_text()) for name in NAMES]
