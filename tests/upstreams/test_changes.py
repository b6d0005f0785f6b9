"""Tools that come and go while the gateway runs are listed anew, and clients of both eras are told, once for a burst."""

import shlex
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError

from tests.upstreams.behind import ERAS, PAIRS, gateway, hostile, lines, text_of
from tests.upstreams.changing import Changing
from tests.upstreams.servers.http_server import HttpServer, serving
from tests.waiting import until
from tests.ways import IN_MEMORY, STATELESS, Way
from toolpost.app import App, open_app, open_http
from toolpost.app.open import OpenOptions
from toolpost.contracts.errors import LoginRequired, UpstreamUnavailable
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.upstreams import changes
from toolpost.upstreams.handshake import Negotiation
from toolpost.upstreams.spec import ServerSpec
from toolpost.upstreams.transport import UpstreamRequest

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks"), pytest.mark.wire]


@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_a_burst_of_changes_is_told_once(
    way: Way, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "DEBOUNCE_S", 1)  # a busy machine may hold the server up in the middle of it
    log = tmp_path / "log"
    async with open_app(IN_MEMORY, bundled=False, servers=[hostile(version=version, log=log)]) as app:
        await anyio.sleep(0.5)  # what was learnt at the start is announced too
        told, names = await told_after_change(app, way)

    assert told == 1
    assert "up__fresh" in names
    assert "up__refuse" not in names
    assert lines(log).count("tools/list") == 2


@pytest.mark.parametrize("version", ERAS)
async def test_a_change_is_heard_over_http(version: str) -> None:
    server = HttpServer(version=version)
    async with serving(server) as url, gateway(ServerSpec(name="up", url=url)) as (_, client):
        await until(lambda: server.listeners)
        await client.call_tool("up__change")
        await until_listed(client, "up__fresh")

    assert server.methods.count("tools/list") == 2


async def test_a_stream_of_changes_that_is_lost_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "LISTEN_RETRY_S", 0.01)
    opened, is_held, lost = 0, anyio.Event(), list[int]()

    class Transport:
        async def request(self, request: UpstreamRequest) -> bytes:
            nonlocal opened
            assert request.method == "subscriptions/listen"
            opened += 1
            if opened == 1:
                raise UpstreamUnavailable("it ended its event stream without an answer")
            if opened == 2:
                raise LoginRequired("the token has expired")
            is_held.set()
            await anyio.sleep_forever()
            raise AssertionError

    negotiation = Negotiation(version=STATELESS, is_stateless=True, capabilities={"tools": {"listChanged": True}})
    transport: Any = Transport()
    async with anyio.create_task_group() as tasks:
        subscriptions = changes.InstanceSubscriptions()
        tasks.start_soon(changes.keep_subscribed, transport, negotiation, subscriptions, lambda: lost.append(opened))
        with anyio.fail_after(30):
            await is_held.wait()
        tasks.cancel_scope.cancel()

    assert opened == 3
    assert lost == [1, 2], "behind a connection that was lost there may be another server"


async def test_a_change_that_nobody_told_is_found_when_the_server_refuses() -> None:
    async with gateway(hostile()) as (_, client):
        await client.call_tool("up__change_quietly")
        with pytest.raises(MCPError, match="Unknown tool: refuse"):
            await client.call_tool("up__refuse")
        await until_listed(client, "up__fresh")
        answer = await client.call_tool("up__fresh")

    assert text_of(answer) == "fresh"


async def test_a_list_without_the_tools_of_a_slow_server_has_no_lifetime(tmp_path: Path) -> None:
    changing, gate = Changing(tmp_path), tmp_path / "gate"
    wait_and_start = f'until [ -e "{gate}" ]; do sleep 0.1; done; exec {shlex.join(changing.command)}'
    slow = ServerSpec(name="maps", command=("sh", "-c", wait_and_start))
    async with (
        open_app(IN_MEMORY, bundled=False, servers=[hostile(), slow], options=OpenOptions(learn_limit_s=0.0)) as app,
        open_http(app) as url,
        Client(url, mode=STATELESS) as client,
        client.listen(tools_list_changed=True) as subscription,
    ):
        await until_listed(client, "up__change")
        early = whole = await client.list_tools()
        gate.touch()
        with anyio.fail_after(60):
            async for _ in subscription:
                # Not `bypass`: a client that keeps a list for its lifetime asks again.
                whole = await client.list_tools()
                if "maps__lookup" in {tool.name for tool in whole.tools}:
                    break

    assert "maps__lookup" not in {tool.name for tool in early.tools}
    assert (early.ttl_ms, whole.ttl_ms) == (0, 60_000)


async def until_listed(client: Client, name: str) -> None:
    with anyio.fail_after(30):
        while name not in {tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools}:
            await anyio.sleep(0.02)


async def told_after_change(app: App, way: Way) -> tuple[int, set[str]]:
    """Change the tools by a call, and say how often the client was told and what is listed then."""
    told: list[Any] = []

    async def hear(message: Any) -> None:
        if "ToolListChanged" in type(message).__name__ or "ToolListChanged" in repr(message):
            told.append(message)

    async def change_and_wait(client: Client) -> set[str]:
        if way == Way("http", "legacy"):
            await until(lambda: app.shares.streams.taken)
        await client.call_tool("up__change")
        await until(lambda: told)
        await anyio.sleep(1.3)  # what must not come would be here by now
        return {tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools}

    async def listened(client: Client) -> set[str]:
        if way.mode != STATELESS:
            return await change_and_wait(client)
        async with client.listen(tools_list_changed=True) as subscription, anyio.create_task_group() as tasks:

            async def follow() -> None:
                async for event in subscription:
                    told.append(event)

            tasks.start_soon(follow)
            names = await change_and_wait(client)
            tasks.cancel_scope.cancel()
        return names

    handler = None if way.mode == STATELESS else hear
    if way.transport == "memory":
        async with Client(
            open_memory_endpoint(app.call_handler, app.sdk), mode=way.mode, message_handler=handler
        ) as client:
            names = await listened(client)
    else:
        async with open_http(app) as url, Client(url, mode=way.mode, message_handler=handler) as client:
            names = await listened(client)
    return len(told), names
