"""`toolpost serve`: a real client over HTTP and over stdio, and an end that is clean."""

import gc
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters

from tests.cli.conftest import PLUGIN, TOOLPOST, Run, Server
from tests.cli.test_first_use import SMALL
from tests.waiting import until
from toolpost.cli import serve as serving

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

Serve = Callable[..., Server]


async def test_client_calls_a_tool_over_http(serve: Serve, run: Run) -> None:
    server = serve()
    async with Client(server.url) as client:
        answer = await client.call_tool("demo__echo", {"text": "hi"})
        await client.call_tool("demo__fail", {})
    ended = server.end()

    assert answer.structured_content == {"ok": True, "data": {"text": "hi"}}
    assert server.facts["status"] == "ok"
    assert ended.code == 0
    assert f"tools at {server.url} (Ctrl-C stops it)" in ended.err
    assert " WARNING tool failed  tool=demo__fail plugin=demo call=" in ended.err
    assert "caller=local code=HANDLER_ERROR" in ended.err
    assert 'message="the disk is on fire"' in ended.err
    assert "Traceback" in ended.err
    assert len(run("audit", "--json", "--caller", "local").out.splitlines()) == 2


async def test_json_logs_are_one_object_a_line(serve: Serve) -> None:
    server = serve("--log-format", "json", "--plugin", "plugin_for_tests:partly")
    async with Client(server.url) as client:
        await client.call_tool("demo__fail", {})
    events = {line["event"]: line for line in map(json.loads, server.end().err.splitlines())}

    assert events["serving"]["url"] == server.url
    assert events["tool refused"]["plugin"] == "partly"
    failure = events["tool failed"]
    assert {"ts", "level", "logger", "tool", "call", "trace", "exception"} <= set(failure)
    assert failure["level"] == "warning"
    assert failure["exception"].startswith("Traceback")


async def test_client_calls_a_tool_over_stdio(tmp_path: Path, environment: dict[str, str]) -> None:
    arguments = ["serve", "--stdio", *PLUGIN]
    server = StdioServerParameters(command=TOOLPOST, args=arguments, env=environment, cwd=tmp_path)
    async with Client(server) as client:
        answer = await client.call_tool("demo__chat", {})

    assert answer.structured_content == {"ok": True, "data": "said"}


async def test_nothing_but_the_protocol_is_on_stdout(run: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text('[plugins]\nload = ["plugin_for_tests:failing"]\n')
    ended = run("serve", "--stdio", *PLUGIN, stdin="")

    assert ended.code == 0
    assert ended.out == ""
    assert "on stdio (closing stdin stops it)" in ended.err
    assert "warning: plugin `failing` could not be started: RuntimeError: no licence" in ended.err
    assert "Traceback" not in ended.err


async def test_call_in_flight_has_its_grace(serve: Serve) -> None:
    server = serve()
    async with _call_in_flight(server, steps=2, pause_s=0.5) as answers:
        server.process.send_signal(signal.SIGTERM)
    server.process.wait(60)

    assert answers == [{"ok": True, "data": "done"}]
    assert server.process.returncode == 0


@pytest.mark.parametrize("signals", [1, 2])
async def test_call_that_takes_too_long_is_cancelled(serve: Serve, tmp_path: Path, signals: int) -> None:
    grace_s = 1 if signals == 1 else 60
    (tmp_path / "toolpost.toml").write_text(f"limits.grace_s = {grace_s}\n")
    server = serve()
    async with _call_in_flight(server, pause_s=25) as answers:
        began = time.monotonic()
        for _ in range(signals):
            server.process.send_signal(signal.SIGTERM)
            await anyio.sleep(0.1)
    server.process.wait(60)

    assert server.process.returncode == 0
    assert time.monotonic() - began < 20
    assert "CANCELLED" in str(answers)


async def test_interrupt_ends_it_cleanly(serve: Serve) -> None:
    ended = serve().end(signal.SIGINT)

    assert ended.code == 0
    assert "Traceback" not in ended.err


async def test_port_in_use_is_said_plainly(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run("serve", "--listen", f"127.0.0.1:{port}")

    assert ended.code == 3
    assert f"error: cannot listen on 127.0.0.1:{port}: Address already in use" in ended.err
    assert f"hint: another server is there; try --listen 127.0.0.1:{port + 1}" in ended.err


async def test_stdio_goes_without_an_address(run: Run) -> None:
    ended = run("serve", "--stdio", "--listen", "127.0.0.1:1")

    assert ended.code == 2
    assert "error: --stdio cannot be used with --listen or --json" in ended.err


@asynccontextmanager
async def _call_in_flight(server: Server, **arguments: float) -> AsyncIterator[list[object]]:
    """Call a tool and go on once it runs; its answer is there when the context is left."""
    answers: list[object] = []
    runs = anyio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        runs.set()

    async with Client(server.url) as client, anyio.create_task_group() as tasks:
        # Otherwise the client would ask for the schema of the answer once it has that, and the server may be gone by then.
        await client.list_tools()

        async def call() -> None:
            answer = await client.call_tool("demo__steps", arguments, progress_callback=note)
            answers.append(answer.structured_content)

        tasks.start_soon(call)
        await runs.wait()
        yield answers


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP")
async def test_hangup_reads_the_configuration_again(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "toolpost.toml"
    text = f'[servers.aaa]\ncommand = "{sys.executable}"\nargs = ["-S", "-E", "{SMALL}", "fine"]\n'
    file.write_text(text)
    server = serve()
    before = file.stat()
    # As if the clock of the disk were coarse: nobody who looks at the file's times sees a change.
    file.write_text(text.replace("aaa", "bbb"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    server.process.send_signal(signal.SIGHUP)
    async with Client(server.url) as client:
        with anyio.fail_after(60):
            while "bbb__echo" not in {tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools}:
                await anyio.sleep(0.1)
    ended = server.end()

    assert ended.code == 0
    assert "INFO reloading" in ended.err
    assert 'added=["bbb"] removed=["aaa"]' in ended.err


def test_a_named_plugin_that_does_not_load_ends_the_server(run: Run) -> None:
    ended = run("serve", "--listen", "127.0.0.1:0", "--plugin", "no_such_module:plugin")

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error: plugin `no_such_module:plugin` could not be loaded: there is no module")
    assert ended.err.count("\n") == 1


async def test_objects_are_collected_once_the_start_is_over(serve: Serve, tmp_path: Path) -> None:
    lines = (
        "import gc",
        "from toolpost import Plugin",
        "plugin = Plugin('collecting', version='1.0.0')",
        "IS_ON_AT_START = gc.isenabled()",
        "@plugin.tool",
        "def tell() -> list[bool]:",
        "    '''Tell whether objects are collected: at the start, and now.'''",
        "    return [IS_ON_AT_START, gc.isenabled()]",
    )
    (tmp_path / "collecting.py").write_text("\n".join(lines))
    server = serve("--plugin", "collecting:plugin")
    async with Client(server.url) as client:
        answer = await client.call_tool("collecting__tell", {})

    assert answer.structured_content == {"ok": True, "data": [False, True]}


@pytest.mark.parametrize(("has_many", "generations"), [(False, [2]), (True, [1])])
async def test_new_objects_are_frozen_while_there_are_many(
    has_many: bool, generations: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    collected: list[int] = []
    frozen: list[bool] = []
    monkeypatch.setattr(serving, "LOOK_S", 0.01)
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, serving.GROWN))
    monkeypatch.setattr(gc, "collect", lambda generation=2: collected.append(generation))
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serving.run_collections, lambda: has_many)
        await until(lambda: bool(collected))
        tasks.cancel_scope.cancel()

    assert collected[:1] == generations
    assert bool(frozen) == has_many
