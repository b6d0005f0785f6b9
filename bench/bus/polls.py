"""Workers that wait for a task that does not come: what they cost the server."""

import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.http_calls import free_port
from bench.load import BenchError
from bench.processes import BIN, open_process
from bench.wire import wait_until_served

_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
POLL_MS = 55_000


def idle_cpu_percent(count: int, seconds: float) -> float:
    """Let so many workers wait, and return how much of one core the server needs meanwhile."""
    with tempfile.TemporaryDirectory(prefix="toolpost-bench-") as folder:
        port = free_port()
        config = Path(folder) / "toolpost.toml"
        config.write_text(f'[store]\nurl = "sqlite:{folder}/bus.db"\n')
        command = [str(BIN / "toolpost"), "serve", "--only", "bus", "--listen", f"127.0.0.1:{port}"]
        with open_process([*command, "--config", str(config), "--log-level", "error"]) as server:
            wait_until_served(port, server, "modern")
            return asyncio.run(_measured(port, count, seconds, server.cpu_s))


async def _measured(port: int, count: int, seconds: float, cpu_s: Callable[[], float]) -> float:
    ready = asyncio.Semaphore(0)
    polls = [asyncio.ensure_future(_poll(port, f"w{number}", ready)) for number in range(count)]
    for _ in polls:
        await ready.acquire()
    await asyncio.sleep(5)  # until the last of them waits
    if any(poll.done() for poll in polls):
        raise BenchError("a poll ended before its time")
    before, began = cpu_s(), time.perf_counter()
    await asyncio.sleep(seconds)
    used = (cpu_s() - before) / (time.perf_counter() - began) * 100
    if any(poll.done() for poll in polls):
        raise BenchError("a poll ended before its time")
    for poll in polls:
        poll.cancel()
    await asyncio.gather(*polls, return_exceptions=True)
    return used


async def _poll(port: int, name: str, ready: asyncio.Semaphore) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await _asked(reader, writer, "register_worker", {"name": name})
        ready.release()
        await _asked(reader, writer, "poll_task", {"name": name, "timeout_ms": POLL_MS})
    finally:
        writer.close()


async def _asked(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tool: str, arguments: dict[str, object]
) -> None:
    params = {"name": tool, "arguments": arguments, "_meta": _META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    head = (
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
        f"Mcp-Method: tools/call\r\nMcp-Name: {tool}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    said = await reader.readexactly(length)
    if b'"isError":true' in said or b'"error"' in said:
        raise BenchError(f"{tool} failed: {said[:300]!r}")
