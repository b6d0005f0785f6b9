"""Server objects of the SDK and of FastMCP are served in process as they are, and treated as any other server."""

import json
from typing import Any

import anyio
import mcp_types as types
import pytest
from fastmcp import Context as FastContext
from mcp import Client, MCPError
from mcp.server.mcpserver import MCPServer

from tests.upstreams.behind import report, text_of
from tests.upstreams.servers import objects
from tests.upstreams.servers.objects import MAKERS, Seen
from tests.waiting import until
from tests.ways import STATELESS, Way, stdio_server
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.providers.plugin_candidates import candidates_from
from toolpost.providers.plugins import Plugins
from toolpost.settings.model import PluginSettings
from toolpost.testing import IN_MEMORY, Config, client_of, error_of, open_test_app

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks"), pytest.mark.wire, pytest.mark.soak]

KINDS = list(MAKERS)
MODES = ["legacy", STATELESS]
OBJECTS = "tests.upstreams.servers.objects"


def answers(name: str) -> dict[str, Any]:
    async def elicit(_context: Any, _params: Any) -> Any:
        return types.ElicitResult(action="accept", content={"name": name})

    return {"elicitation_callback": elicit}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
async def test_tools_resources_prompts_context_and_lifespan_work(kind: str, mode: str) -> None:
    seen = Seen()
    steps: list[tuple[Any, ...]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total, message))

    async with client_of(MAKERS[kind](seen), mode=mode, **answers("Ada")) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["things__add"].output_schema is not None
        added = await client.call_tool("things__add", {"a": 1, "b": 2})
        assert (added.structured_content, text_of(added)) == ({"result": 3}, "3")
        assert text_of(await client.call_tool("things__rows")) == "7"
        assert text_of(await client.call_tool("things__steps", progress_callback=on_progress)) == "done"
        assert steps == [(1.0, 2.0, "half")]
        assert text_of(await client.call_tool("things__ask", {"who": "one"})) == "one: Ada"
        [content] = (await client.read_resource("things://one")).contents
        assert isinstance(content, types.TextResourceContents)
        assert content.text == "the first thing"
        [content] = (await client.read_resource("things://by-name/cup")).contents
        assert isinstance(content, types.TextResourceContents)
        assert content.text == "the thing cup"
        [prompt] = (await client.list_prompts()).prompts
        made = await client.get_prompt(prompt.name, {"thing": "a cup"})
        assert isinstance(made.messages[0].content, types.TextContent)
        assert made.messages[0].content.text == "Describe a cup."
        assert (seen.lifespans, seen.ended) == (1, 0)
    assert (seen.lifespans, seen.ended) == (1, 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_arguments_are_held_to_the_schema_before_the_object_sees_them(kind: str) -> None:
    async with client_of(MAKERS[kind](Seen())) as client:
        error = error_of(await client.call_tool("things__add", {"a": "x", "b": 2}))
        assert error["code"] == "INVALID_PARAMS"
        failed = await client.call_tool("things__fail")
        assert failed.is_error
        assert "fail" in json.dumps([block.model_dump() for block in failed.content])


async def test_a_low_level_server_is_served() -> None:
    async with client_of(objects.make_low_level(Seen())) as client:
        assert text_of(await client.call_tool("things__double", {"a": 4})) == "8"
        assert error_of(await client.call_tool("things__double", {}))["code"] == "INVALID_PARAMS"


async def test_a_result_that_is_not_json_is_an_error_of_that_call_only() -> None:
    server = objects.make_low_level(Seen())

    async def call_tool(_ctx: Any, params: Any) -> dict[str, Any]:
        strange = object() if params.arguments["a"] == 1 else "fine"
        return {"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": strange}}

    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    async with client_of(server) as client:
        try:
            assert (await client.call_tool("things__double", {"a": 1})).is_error
        except MCPError:
            pass
        assert text_of(await client.call_tool("things__double", {"a": 2})) == "x"


@pytest.mark.parametrize("kind", KINDS)
async def test_each_of_two_clients_is_asked_about_its_own_call(kind: str) -> None:
    """On a pipe nothing would say which client is meant, and both would be refused."""
    got: dict[str, str] = {}

    async with open_test_app(MAKERS[kind](Seen())) as app:

        async def call(who: str) -> None:
            endpoint = open_memory_endpoint(app.call_handler, app.sdk)
            async with Client(endpoint, mode="legacy", **answers(f"friend of {who}")) as client:
                got[who] = text_of(await client.call_tool("things__ask", {"who": who}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, "ann")
            tasks.start_soon(call, "bob")
    assert got == {"ann": "ann: friend of ann", "bob": "bob: friend of bob"}


@pytest.mark.parametrize("kind", KINDS)
async def test_cancelling_a_call_cancels_the_handler(kind: str) -> None:
    seen = Seen()
    async with client_of(MAKERS[kind](seen)) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "things__wait")
            await until(lambda: seen.waiting == 1)
            tasks.cancel_scope.cancel()
        await until(lambda: seen.cancelled == 1)
        assert text_of(await client.call_tool("things__add", {"a": 1, "b": 1})) == "2"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_handler_that_exits_does_not_end_the_gateway(kind: str) -> None:
    async with open_test_app(MAKERS[kind](Seen())) as app:
        async with Client(open_memory_endpoint(app.call_handler, app.sdk)) as client:
            with pytest.raises(MCPError, match="tried to exit"):
                await client.call_tool("things__leave")
            assert text_of(await client.call_tool("things__add", {"a": 1, "b": 1})) == "2"
        assert report(app, "things").restarts == 0


async def test_a_loop_that_crashes_is_started_again() -> None:
    seen = Seen()
    async with open_test_app(objects.make_sdk(seen)) as app:
        async with Client(open_memory_endpoint(app.call_handler, app.sdk)) as client:
            assert (await client.call_tool("things__crash")).is_error
            assert "Crash: boom" in str(report(app, "things").last_error)
            await until(lambda: report(app, "things").restarts == 1)
            assert text_of(await client.call_tool("things__add", {"a": 1, "b": 1})) == "2"
        assert report(app, "things").restarts == 1
        assert report(app, "things").transport == "in process"
    assert seen.lifespans == 2


async def test_a_lifespan_that_fails_is_told_and_does_not_stop_the_gateway() -> None:
    def lifespan(_server: Any) -> Any:
        raise RuntimeError("no database")

    broken = MCPServer("broken", lifespan=lifespan)
    async with open_test_app(broken, objects.make_sdk(Seen())) as app:
        async with Client(open_memory_endpoint(app.call_handler, app.sdk)) as client:
            assert text_of(await client.call_tool("things__add", {"a": 1, "b": 1})) == "2"
        line = lifespan.__code__.co_firstlineno + 1
        assert f"RuntimeError: no database ({__file__}:{line})" in str(report(app, "broken").last_error)


async def test_tools_that_are_added_while_it_runs_are_listed() -> None:
    mcp = objects.make_fastmcp(Seen())

    @mcp.tool
    async def grow(ctx: FastContext) -> str:
        mcp.tool(lambda: "new", name="grown")
        await ctx.send_notification(types.ToolListChangedNotification())
        return "grown"

    async with (
        open_test_app(mcp) as app,
        Client(open_memory_endpoint(app.call_handler, app.sdk), mode="legacy") as client,
    ):
        await client.call_tool("things__grow")
        with anyio.fail_after(30):
            while "things__grown" not in [tool.name for tool in (await client.list_tools()).tools]:
                await anyio.sleep(0.02)


async def test_the_name_is_the_authors_else_that_of_the_module() -> None:
    host = Plugins()
    for candidate in candidates_from([f"{OBJECTS}:mcp", f"{OBJECTS}:unnamed", f"{OBJECTS}:fast"]):
        host.load(candidate)
    assert list(host.servers) == ["things", "objects"]
    [failed] = host.plugins
    assert "another plugin is already named `things`" in failed.problems[0]


async def test_one_object_can_be_served_alone() -> None:
    config = Config(store=IN_MEMORY.store, plugins=PluginSettings(load=[f"{OBJECTS}:low"], only="things"))
    async with open_test_app(config=config) as app, Client(open_memory_endpoint(app.call_handler, app.sdk)) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["things__double"]


@pytest.mark.parametrize("way", [Way("http", STATELESS)], ids=str)
async def test_it_is_served_over_http(way: Way) -> None:
    async with open_test_app(objects.make_fastmcp(Seen())) as app, way.client_of(app) as client:
        assert text_of(await client.call_tool("things__add", {"a": 1, "b": 2})) == "3"


async def test_the_command_line_takes_an_object(tmp_path: Any) -> None:
    server = stdio_server(f"{OBJECTS}:mcp", cwd=tmp_path)
    async with Client(server, mode="legacy") as client:
        assert text_of(await client.call_tool("things__add", {"a": 1, "b": 2})) == "3"
