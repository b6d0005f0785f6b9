"""Processes that are killed, through the gateway: what they had started dies too, and the other calls' answers arrive."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import psutil
import pytest
from mcp import Client
from mcp_types import CallToolResult

from tests.upstreams.behind import HOSTILE, ONE_OF_EACH, beside, gateway, hostile, lines, report, text_of, until
from tests.upstreams.test_stdio_faults import unavailable
from tests.ways import MODERN, TOOLPOST, Way, server_environment

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks")]


def children_in(log: Path) -> list[int]:
    return [int(line.split()[1]) for line in lines(log) if line.startswith("child ")]


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


async def test_a_gateway_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = json.dumps(["-S", "-E", str(HOSTILE), "--log", str(log)])
    (tmp_path / "toolpost.toml").write_text(f"[servers.up]\ncommand = {json.dumps(sys.executable)}\nargs = {words}\n")
    process = subprocess.Popen(
        [TOOLPOST, "serve", "--listen", "127.0.0.1:0", "--json"],
        cwd=tmp_path,
        env=server_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        url = json.loads(await anyio.to_thread.run_sync(process.stdout.readline))["url"]
        async with Client(url, mode=MODERN) as client:
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
