"""What an endpoint serves: all tools, only the two that stand for them, or both; the list never varies by itself."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.discovery.asking import ask, names_of, office
from tests.plugins.office import OFFICE
from tests.upstreams.behind import PAIRS, gateway, hostile, until
from tests.ways import AUTOMATIC, BOTH, IN_MEMORY, MODERN, QUICK_WAYS, WAYS, Way, stdio_peer
from toolpost.app import open_app, open_http
from toolpost.discovery.automatic import INSTRUCTIONS
from toolpost.endpoints.sdk.server import INSTRUCTIONS as ALL_INSTRUCTIONS
from toolpost.running import App

pytestmark = pytest.mark.anyio

TWO = ["automatic_eval", "automatic_mcp"]


async def listed(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]


async def instructions(client: Client) -> str:
    """Return what a client is told: in the handshake, or when it asks."""
    if client.instructions is not None:
        return client.instructions
    return str((await client.session.send_discover(MODERN))["instructions"])


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_two_tools_stand_for_all(way: Way) -> None:
    async with way.client(*OFFICE, config=AUTOMATIC) as client:
        names = await listed(client)
        told = await instructions(client)
        with pytest.raises(MCPError) as direct:
            await client.call_tool("wiki__list_page", {"page_id": "1"})

    assert names == TWO
    assert told == INSTRUCTIONS
    assert told.count(". ") + told.endswith(".") == 3
    assert direct.value.error.code == -32602
    assert "automatic_eval" in direct.value.error.data["hint"]


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_by_default_all_are_listed_and_the_two_are_not_there(way: Way) -> None:
    async with way.client(*OFFICE) as client:
        names = await listed(client)
        told = await instructions(client)
        with pytest.raises(MCPError) as refused:
            await client.call_tool("automatic_mcp", {"query": "page"})

    assert len(names) == 61
    assert not set(names) & set(TWO)
    assert told == ALL_INSTRUCTIONS
    assert "--mode automatic" in refused.value.error.data["hint"]


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_both_are_listed_in_one_order_and_callable(way: Way) -> None:
    async with way.client(*OFFICE, config=BOTH) as client:
        names = await listed(client)
        direct = await client.call_tool("wiki__list_page", {"page_id": "1"})
        found = await ask(client, "list wiki pages")

    assert names == sorted(names)
    assert set(TWO) < set(names)
    assert not direct.is_error
    assert "wiki__list_page" in names_of(found)
    assert not set(TWO) & set(names_of(found))


@pytest.mark.wire
@pytest.mark.parametrize("config", [AUTOMATIC, BOTH], ids=["automatic", "both"])
async def test_the_list_does_not_vary_with_what_was_asked(config: Any) -> None:
    async with office(config) as app, Way("http", MODERN).client_of(app) as client:
        before = await client.list_tools(cache_mode="bypass")
        for query in ("mail", "calendar", ""):
            await ask(client, query, sessionId="s")
        await client.call_tool("automatic_eval", {"toolName": "wiki__list_page", "arguments": {"page_id": "1"}})
        after = await client.list_tools(cache_mode="bypass")

    assert before.tools == after.tools


async def test_the_description_teaches_how_to_ask_and_names_the_servers() -> None:
    async with office(AUTOMATIC) as app, Way("memory", "legacy").client_of(app) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        size = len(json.dumps([tool.model_dump(by_alias=True, mode="json") for tool in tools.values()]))

    description = tools["automatic_mcp"].description or ""
    assert "one search for each sub-task" in description
    assert "English" in description
    assert "Servers here: calendar, mail, shop, wiki." in description
    assert tools["automatic_eval"].output_schema is None
    assert tools["automatic_mcp"].output_schema is not None
    assert size / 4 < 1_500


@pytest.mark.wire
@pytest.mark.parametrize(("way", "version"), PAIRS, ids=str)
async def test_tools_that_change_are_not_told_where_two_stand_for_all(way: Way, version: str, tmp_path: Path) -> None:
    async with open_app(AUTOMATIC, bundled=False, servers=[hostile(version=version, log=tmp_path / "log")]) as app:
        await anyio.sleep(0.2)
        told = await told_while(app, way, lambda client: change(app, client))

    assert told == 0


async def change(app: App, client: Client) -> None:
    await client.call_tool("automatic_eval", {"toolName": "up__change"})
    await until(lambda: any(tool.contract.name == "up__fresh" for tool in app.gateway.catalog))


@pytest.mark.wire
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_servers_that_change_are_told_and_described(way: Way) -> None:
    async with open_app(AUTOMATIC, bundled=False, servers=[hostile("first")]) as app:
        await anyio.sleep(0.2)

        async def add(client: Client) -> None:
            await app.servers.apply([hostile("first"), hostile("second")])
            await until(lambda: "second" in app.gateway.catalog.servers)
            tools = (await client.list_tools(cache_mode="bypass")).tools
            assert "Servers here: first, second." in (tools[1].description or "")

        told = await told_while(app, way, add)

    assert told == 1


async def told_while(app: App, way: Way, act: Any) -> int:
    """Count how often a client was told that the list has changed."""
    told: list[Any] = []

    async def hear(message: Any) -> None:
        if "ToolListChanged" in repr(message):
            told.append(message)

    async def watch(client: Client) -> None:
        if way.mode != MODERN:
            await act(client)
            await anyio.sleep(0.4)
            return
        async with client.listen(tools_list_changed=True) as subscription, anyio.create_task_group() as tasks:

            async def follow() -> None:
                async for message in subscription:
                    await hear(message)

            tasks.start_soon(follow)
            await act(client)
            await anyio.sleep(0.4)
            tasks.cancel_scope.cancel()

    if way.transport == "memory":
        from toolpost.endpoints.memory import open_memory_endpoint

        endpoint = open_memory_endpoint(app.call_handler, app.sdk)
        async with Client(endpoint, mode=way.mode, message_handler=hear) as client:
            await watch(client)
    else:
        async with open_http(app) as url, Client(url, mode=way.mode, message_handler=hear) as client:
            await watch(client)
    return len(told)


@pytest.mark.wire
async def test_the_oldest_revision_is_served_too(tmp_path: Path) -> None:
    def play() -> tuple[Any, Any]:
        with stdio_peer(*OFFICE, cwd=tmp_path, arguments=("--mode", "automatic")) as peer:
            peer.shake_hands("2024-11-05")
            peer.send({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
            listing = peer.receive()
            params = {"name": "automatic_mcp", "arguments": {"query": "list wiki pages"}}
            peer.send({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params})
            return listing, peer.receive()

    listing, answer = await anyio.to_thread.run_sync(play)
    assert [tool["name"] for tool in listing["result"]["tools"]] == TWO
    assert "structuredContent" not in answer["result"]
    assert "wiki__list_page" in names_of(json.loads(answer["result"]["content"][0]["text"]))


async def test_nothing_is_prepared_where_nobody_can_search() -> None:
    async with office(IN_MEMORY) as app, gateway() as _:
        await anyio.sleep(0.1)
        made = app.gateway.metrics.preparations.value()

    assert made == 0
