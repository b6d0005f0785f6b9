"""Every fault a server may have, all at once behind one `toolpost serve`: each call gets its error, a good server notices
nothing, and `toolpost servers` shows what is wrong with which."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client

from tests.loaded import loaded_toolpost
from tests.upstreams.behind import HOSTILE, text_of
from tests.upstreams.comparing import serving_http
from tests.upstreams.servers.http_server import HttpServer, serving
from tests.waiting import until
from tests.ways import STATELESS, server_environment
from tests.wire.callers import names
from toolpost.testing import error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

MEBIBYTE = 1024 * 1024
SHORT = {"timeout_s": 2}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A server that does something wrong when this tool is called; no tool: it is wrong from the start."""

    tool: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    code: str | None = None
    """What its own call gets; None: the right answer."""
    shown: Callable[[dict[str, Any]], bool] = lambda _report: True
    """What `toolpost servers` must say."""
    start: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


def failed(*words: str) -> Callable[[dict[str, Any]], bool]:
    # It is tried again meanwhile, and given up in the end.
    return lambda report: report["state"] in ("failed", "starting", "suspended") and told(*words)(report)


def told(*words: str) -> Callable[[dict[str, Any]], bool]:
    return lambda report: bool(report["lastErrorAt"]) and all(word in (report["lastError"] or "") for word in words)


def is_odd(report: dict[str, Any]) -> bool:
    return bool(report["protocolErrors"]) and (report["state"], report["restarts"]) == ("ready", 0)


def is_well(report: dict[str, Any]) -> bool:
    return (report["state"], report["lastError"], report["restarts"]) == ("ready", None, 0)


def has_timed_out(report: dict[str, Any]) -> bool:
    # On a machine so busy that the ping after the cancellation is late too, it is taken for one that goes on.
    said = ("`never` did not answer within 2 s", "it went on with a call that was cancelled")
    return any(told(words)(report) for words in said)


ON_STDIO = {
    "garbage": Fault(tool="garbage", start="garbage", shown=is_odd),
    "half-line": Fault(tool="half_line", shown=is_well),
    "unknown-id": Fault(tool="unknown_id", shown=is_odd),
    "twice": Fault(tool="twice", shown=is_odd),
    "never": Fault(tool="never", settings=SHORT, code="TOOL_TIMEOUT", shown=has_timed_out),
    "big": Fault(tool="big", arguments={"bytes": 8 * MEBIBYTE}, shown=is_well),
    "too-big": Fault(
        tool="big",
        arguments={"bytes": 70 * MEBIBYTE},
        code="UPSTREAM_UNAVAILABLE",
        shown=told("more than"),
    ),
    "flood": Fault(tool="flood", arguments={"count": 5_000}, shown=is_well),
    "chatter": Fault(tool="chatter", arguments={"count": 5_000}, shown=is_well),
    "stdin": Fault(tool="close_stdin", settings=SHORT, code="TOOL_TIMEOUT", shown=told("closed its input")),
    "stdout": Fault(tool="close_stdout", code="UPSTREAM_UNAVAILABLE", shown=told("closed its output")),
    "daemons": Fault(tool="family", shown=is_well),
    "crash": Fault(tool="crash", code="UPSTREAM_UNAVAILABLE", shown=told("exit code 3", "the disk is on fire")),
    "changes": Fault(tool="change", shown=is_well),
    "lies": Fault(tool="lie", code="OUTPUT_VALIDATION_FAILED", shown=told("breaks the output schema")),
    "no-result": Fault(tool="no_result", code="UPSTREAM_UNAVAILABLE", shown=told("it has no content")),
    "exits": Fault(start="exit", shown=failed("exit code 1", "I will not")),
    "hangs": Fault(start="hang", shown=lambda report: report["state"] == "starting" or failed("did not")(report)),
    "absent": Fault(settings={"command": "no-such-command-anywhere"}, shown=failed("cannot be started")),
    "bad-schemas": Fault(tool="echo", start="bad_schemas", shown=lambda report: len(report["refused"]) == 8),
}

OVER_HTTP = {
    "http-401": (401, Fault(shown=failed("refused access"))),
    "http-404": (404, Fault(shown=failed("404"))),
    "http-500": (500, Fault(shown=failed("HTTP 500"))),
    "http-307": (307, Fault(shown=failed("has moved"))),
    "http-endless": (
        None,
        Fault(tool="endless", code="UPSTREAM_UNAVAILABLE", shown=told("more than")),
    ),
    "http-cut": (None, Fault(tool="cut", code="UPSTREAM_UNAVAILABLE", shown=told("in the middle of its answer"))),
    "http-never": (
        None,
        Fault(tool="never", settings=SHORT, code="TOOL_TIMEOUT", shown=has_timed_out),
    ),
    "http-nowhere": (None, Fault(settings={"url": "http://127.0.0.1:9/mcp"}, shown=failed("cannot connect"))),
}


def on_stdio(fault: Fault) -> dict[str, Any]:
    arguments = ["-S", "-E", str(HOSTILE), "--start", fault.start]
    return {"timeout_s": 60, "command": sys.executable, "args": arguments, **fault.settings}


@asynccontextmanager
async def project(folder: Path) -> AsyncIterator[Path]:
    """Write the configuration of all of them; those over HTTP run meanwhile."""
    servers: dict[str, dict[str, Any]] = {"good": on_stdio(Fault())}
    servers |= {name: on_stdio(fault) for name, fault in ON_STDIO.items()}
    async with AsyncExitStack() as stack:
        for name, (status, fault) in OVER_HTTP.items():
            server = HttpServer(version="2025-11-25")
            server.status, server.location = status, "https://example.com/there"
            url = await stack.enter_async_context(serving(server))
            servers[name] = {"timeout_s": 60, "url": url, **fault.settings}
        parts = [
            "\n".join((f"[servers.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items())))
            for name, settings in servers.items()
        ]
        path = folder / "toolpost.toml"
        await anyio.to_thread.run_sync(path.write_text, '[store]\nurl = "sqlite::memory:"\n\n' + "\n\n".join(parts))
        yield path


async def are_shown(url: str, faults: dict[str, Fault]) -> bool:
    reports = await shown(url)
    return all(fault.shown(reports[name]) for name, fault in faults.items())


@pytest.mark.parametrize(
    "mode", [pytest.param("legacy", marks=pytest.mark.soak), STATELESS], ids=["handshake", "modern"]
)
async def test_each_fault_is_its_own_servers_alone_and_can_be_seen(mode: str, tmp_path: Path) -> None:
    faults = ON_STDIO | {name: fault for name, (_, fault) in OVER_HTTP.items()}
    codes: dict[str, str | None] = {}
    neighbours: list[str] = []
    is_over = anyio.Event()
    async with project(tmp_path) as path, AsyncExitStack() as stack:
        served = serving_http(path)
        url = await anyio.to_thread.run_sync(served.__enter__)
        stack.push_async_callback(anyio.to_thread.run_sync, served.__exit__, None, None, None)
        async with Client(url, mode=mode) as client, anyio.create_task_group() as tasks:

            async def keep_calling() -> None:
                while not is_over.is_set():
                    neighbours.append(text_of(await client.call_tool("good__sleep", {"seconds": 0.05})))

            async def call(name: str, fault: Fault) -> None:
                answer = await client.call_tool(f"{name}__{fault.tool}", fault.arguments)
                codes[name] = error_of(answer)["code"] if answer.is_error else None

            await all_there(client, {name for name, fault in faults.items() if fault.tool is not None} | {"good"})
            tasks.start_soon(keep_calling)
            async with anyio.create_task_group() as callers:
                for name, fault in faults.items():
                    if fault.tool is not None:
                        callers.start_soon(call, name, fault)
            # A server that reads no more is found out by the cancellation of its call, after the answer.
            await until(lambda: are_shown(url, faults))
            reports = await shown(url)
            is_over.set()

    assert codes == {name: fault.code for name, fault in faults.items() if fault.tool is not None}
    assert len(neighbours) > 10
    assert set(neighbours) == {"slept"}
    assert reports["good"]["restarts"] == 0


async def all_there(client: Client, servers: set[str]) -> None:
    """Wait until each has its tools listed: of so many at once, some start late."""
    with anyio.fail_after(90):
        while servers - {name.partition("__")[0] for name in await names(client)}:
            await anyio.sleep(0.2)


async def shown(url: str) -> dict[str, Any]:
    """Ask `toolpost servers`, as a person does and as a program."""
    command = loaded_toolpost("servers", "--url", url)
    run = lambda *more: subprocess.run([*command, *more], capture_output=True, env=server_environment(), check=True)  # noqa: E731
    table = (await anyio.to_thread.run_sync(run)).stdout.decode()
    reports = json.loads((await anyio.to_thread.run_sync(run, "--json")).stdout)
    for report in reports:
        assert report["name"] in table
    return {report["name"]: report for report in reports}
