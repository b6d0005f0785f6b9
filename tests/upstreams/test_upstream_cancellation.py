"""A call that is called off is called off at the server too; one that goes on with it is ended when nobody is harmed."""

import time
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from tests.upstreams.behind import ONE_OF_EACH, PAIRS, gateway, hostile, lines, report, text_of
from tests.upstreams.servers.http_server import HttpServer, serving
from tests.upstreams.wires import Wire, duplex_wire
from tests.waiting import until
from tests.ways import ENVELOPE, IN_MEMORY, STATELESS, Way
from toolpost import CallRequest, CallResult, Next
from toolpost.app import open_app
from toolpost.app.open import OpenOptions
from toolpost.testing import error_of
from toolpost.upstreams import supervisor
from toolpost.upstreams.peer import Peer
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks"), pytest.mark.wire, pytest.mark.every_way]


@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_a_server_on_stdio_hears_that_its_call_is_off(
    way: Way, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "CANCELLATION_GRACE_S", 0.1)
    monkeypatch.setattr(supervisor, "CANCELLATION_PING_S", 60.0)  # on a busy machine a server is slow, and not deaf
    log = tmp_path / "log"
    async with gateway(hostile(version=version, log=log), way=way) as (app, client):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "up__sleep", {"seconds": 60})
            await until(lambda: "sleeping" in lines(log))
            tasks.cancel_scope.cancel()
        await until(lambda: any(line.startswith("cancelled ") for line in lines(log)))
        await until(lambda: report(app).in_flight == 0)
        await anyio.sleep(supervisor.CANCELLATION_GRACE_S + 0.2)
        after = await client.call_tool("up__echo", {"text": "still the same"})
        seen = report(app)

    assert text_of(after) == "still the same"
    assert seen.restarts == 0, "a server that obeys is left alone"


@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_a_server_over_http_hears_that_its_call_is_off(way: Way, version: str) -> None:
    server = HttpServer(version=version)
    async with serving(server) as url, gateway(ServerSpec(name="up", url=url), way=way) as (app, client):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "up__never")
            await until(lambda: "tools/call" in server.methods)
            tasks.cancel_scope.cancel()
        await until(lambda: server.hung_up == 1)
        if version != STATELESS:
            await until(lambda: server.cancelled)
        await until(lambda: report(app).in_flight == 0)

    assert len(server.cancelled) == (0 if version == STATELESS else 1)


async def _post(wire: Wire, message: dict[str, Any]) -> None:
    await wire.post(message)


async def _pass_on(request: CallRequest, proceed: Next) -> CallResult:
    return await proceed(request)


@pytest.mark.parametrize("has_middleware", [False, True])
@pytest.mark.parametrize("back", ["stdio", "http"])
async def test_a_server_reads_the_reason_of_the_client(back: str, has_middleware: bool, tmp_path: Path) -> None:
    log, server = tmp_path / "log", HttpServer(version="2025-11-25")
    steps = [_pass_on] if has_middleware else []
    async with serving(server) as url:
        spec = hostile(log=log) if back == "stdio" else ServerSpec(name="up", url=url)
        async with open_app(IN_MEMORY, bundled=False, servers=[spec], options=OpenOptions(middleware=steps)) as app:
            async with duplex_wire(app, {}, is_stateless=True) as wire, anyio.create_task_group() as tasks:
                name, arguments = ("up__sleep", {"seconds": 60}) if back == "stdio" else ("up__never", {})
                params = {"name": name, "arguments": arguments, "_meta": ENVELOPE}
                message = {"id": "long", "method": "tools/call", "params": params}
                tasks.start_soon(_post, wire, message)
                await until(lambda: "sleeping" in lines(log) if back == "stdio" else "tools/call" in server.methods)
                await wire.notify("notifications/cancelled", {"requestId": "long", "reason": "the plan has changed"})
                await until(lambda: server.reasons or any(line.startswith("reason ") for line in lines(log)))
                tasks.cancel_scope.cancel()

    told = server.reasons or [line for line in lines(log) if line.startswith("reason ")]
    assert told == ["reason the plan has changed" if back == "stdio" else "the plan has changed"]


@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_a_server_that_goes_on_is_ended_when_its_other_call_is_answered(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "CANCELLATION_GRACE_S", 0.1)
    log = tmp_path / "log"
    async with gateway(hostile(log=log, timeout_s=60), way=way) as (app, client):
        answers: list[Any] = []

        async def call() -> None:
            answers.append(await client.call_tool("up__sleep", {"until": str(tmp_path / "wake")}))

        async def call_family() -> None:
            with anyio.CancelScope() as family:
                scopes.append(family)
                await client.call_tool("up__family", {"stays": True})

        scopes: list[anyio.CancelScope] = []

        pid = report(app).pids[0]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until(lambda: "sleeping" in lines(log))
            tasks.start_soon(call_family)
            await until(lambda: any(line.startswith("child ") for line in lines(log)))
            scopes[0].cancel()
            child = int(next(line for line in lines(log) if line.startswith("child ")).split()[1])
            await until(lambda: report(app).state == "draining")
            beside = await client.call_tool("up__pid")
            alive = psutil.pid_exists(child)
            (tmp_path / "wake").touch()
        await until(lambda: not psutil.pid_exists(child) and not psutil.pid_exists(pid))

    assert text_of(answers[0]) == "slept"
    assert alive, "it was ended while another call was in flight"
    assert text_of(beside) != str(pid)


@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_what_a_server_starts_before_its_call_is_awaited_counts(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "CANCELLATION_GRACE_S", 0.1)
    log, send = tmp_path / "log", Peer.try_send

    def be_slow(transport: Peer, *arguments: Any, **options: Any) -> Any:
        pending = send(transport, *arguments, **options)
        if options["name"] == "family":
            # As if the machine had been busy with other processes, until the child is older than a clock tick.
            while not children(log):
                time.sleep(0.1)
            time.sleep(0.1)  # older than a clock tick
        return pending

    monkeypatch.setattr(Peer, "try_send", be_slow)
    async with gateway(hostile(log=log), way=way) as (app, client):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "up__family", {"stays": True})
            await until(lambda: children(log))
            tasks.cancel_scope.cancel()
        await until(lambda: report(app).last_error == "it went on with a call that was cancelled")


def children(log: Path) -> list[int]:
    return [int(line.split()[1]) for line in lines(log) if line.startswith("child ")]


async def test_a_server_that_is_deaf_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(supervisor, "CANCELLATION_GRACE_S", 0.1)
    monkeypatch.setattr(supervisor, "CANCELLATION_PING_S", 0.3)
    async with gateway(hostile(timeout_s=4.0)) as (app, client):
        pid = report(app).pids[0]
        answer = await client.call_tool("up__deaf", {"seconds": 60})
        await until(lambda: not psutil.pid_exists(pid))
        after = await client.call_tool("up__echo", {"text": "anew"})

    assert error_of(answer)["code"] == "TOOL_TIMEOUT"
    assert text_of(after) == "anew"


async def test_a_late_answer_reaches_nobody(tmp_path: Path) -> None:
    async with gateway(hostile(timeout_s=2.0)) as (app, client):
        late = await client.call_tool("up__deaf", {"seconds": 2.5})
        await anyio.sleep(0.7)  # the answer comes 0.5 s too late
        after = [text_of(await client.call_tool("up__echo", {"text": str(n)})) for n in range(5)]
        seen = report(app)

    assert error_of(late)["code"] == "TOOL_TIMEOUT"
    assert after == ["0", "1", "2", "3", "4"]
    assert seen.protocol_errors == 0, "whoever was told late may answer late"
