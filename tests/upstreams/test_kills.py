"""Processes that are killed, through the gateway: what they had started dies too, and the other calls' answers arrive."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import psutil
import pytest
from mcp import Client
from mcp_types import CallToolResult

from tests.hostile.attacks import attack
from tests.loaded import forked
from tests.upstreams.behind import HOSTILE, ONE_OF_EACH, beside, gateway, hostile, lines, report, text_of
from tests.upstreams.servers import http_server
from tests.upstreams.test_stdio_faults import unavailable
from tests.waiting import until
from tests.ways import IN_MEMORY, ROOT, STATELESS, TOOLPOST, Way, server_environment
from toolpost.audit import AuditFilter
from toolpost.settings.model import StoreSettings
from toolpost.testing import error_of
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks"), pytest.mark.wire]


def children_in(log: Path) -> list[int]:
    return [int(line.split()[1]) for line in lines(log) if line.startswith("child ")]


@attack(
    "server",
    "dies under a call and leaves children",
    "the call fails with a clear error, the children are ended, other servers' calls are answered",
)
@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_a_server_that_is_killed_takes_its_grandchildren_along_and_nobody_else(way: Way, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with gateway(hostile(log=log), hostile("good"), way=way) as (app, client):
        await client.call_tool("up__family")
        await client.call_tool("up__family")
        children = children_in(log)
        alive = [psutil.pid_exists(pid) for pid in children]

        answers: list[CallToolResult] = []

        async def kill_under_a_call() -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(kill_soon)
                answers.append(await client.call_tool("up__sleep", {"seconds": 60}))

        async def kill_soon() -> None:
            await until(lambda: "sleeping" in lines(log))
            os.kill(int(server_pid()), signal.SIGKILL)

        def server_pid() -> str:
            return next(line for line in lines(log) if line.startswith("start ")).split()[1]

        await beside(client, "good", kill_under_a_call)
        await until(lambda: not any(psutil.pid_exists(pid) for pid in children))
        after = await client.call_tool("up__echo", {"text": "again"})
        good = report(app, "good")

    assert alive == [True, True]
    assert "killed by SIGKILL" in unavailable(answers[0])["message"]
    assert text_of(after) == "again"
    assert good.restarts == 0


@attack(
    "server",
    "outlives a gateway that was killed, by its children",
    "neither the server nor its children survive",
)
async def test_a_gateway_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = json.dumps(["-S", "-E", str(HOSTILE), "--log", str(log)])
    (tmp_path / "toolpost.toml").write_text(f"[servers.up]\ncommand = {json.dumps(sys.executable)}\nargs = {words}\n")
    process = forked.start(
        [TOOLPOST, "serve", "--listen", "127.0.0.1:0", "--json"],
        cwd=tmp_path,
        env=server_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        url = json.loads(await anyio.to_thread.run_sync(process.stdout.readline))["url"]
        async with Client(url, mode=STATELESS) as client:
            await client.call_tool("up__family")
        started = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        await until(
            lambda: not any(child.is_running() for child in started) and not psutil.pid_exists(children_in(log)[0])
        )
    finally:
        process.kill()
        process.wait()
        process.stdout.close()

    assert len(started) >= 2


@asynccontextmanager
async def web_server(port: int) -> AsyncIterator[None]:
    """A server over HTTP in a process of its own, which is killed."""
    command = [sys.executable, "-m", http_server.__name__, str(port)]
    async with await anyio.open_process(
        command, stdin=subprocess.DEVNULL, stdout=None, stderr=None, cwd=ROOT
    ) as process:
        try:
            await until(lambda: is_listening(port))
            yield
        finally:
            process.kill()


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@attack(
    "server",
    "dies three times under sixteen callers",
    "each call has one answer and one entry in the audit",
)
@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_a_server_over_http_is_killed_under_many_calls_and_each_gets_one_answer(way: Way, tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    spec = ServerSpec(name="up", url=f"http://127.0.0.1:{port}/mcp")
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=f"sqlite:{tmp_path}/toolpost.db"))
    numbers = itertools.count()
    outcomes: Counter[str] = Counter()
    is_over = False

    async def call_on(client: Client) -> None:
        while not is_over:
            number = str(next(numbers))
            answer = await client.call_tool("up__echo", {"text": number})
            outcome = str(error_of(answer)["code"]) if answer.is_error else "ok"
            assert answer.is_error or text_of(answer) == number
            outcomes[outcome] += 1

    async def answered(count: int) -> None:
        reached = outcomes["ok"] + count
        await until(lambda: outcomes["ok"] >= reached)

    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(AsyncExitStack())
        await server.enter_async_context(web_server(port))
        app, client = await stack.enter_async_context(gateway(spec, way=way, config=config))
        async with anyio.create_task_group() as tasks:
            for _ in range(16):
                tasks.start_soon(call_on, client)
            for _ in range(3):
                await answered(200)
                await server.aclose()
                await server.enter_async_context(web_server(port))
            await answered(200)
            is_over = True
        await until(lambda: report(app).in_flight == app.gateway.in_flight == 0)
        audited = await app.store.audit.entries(AuditFilter(), limit=100_000)

    assert set(outcomes) == {"ok", "UPSTREAM_UNAVAILABLE"}
    assert outcomes.total() == len(audited) == next(numbers)
