"""A server of the stateless era is sent in headers what its schemas mirror there, and refuses a call without."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import find_invalid_x_mcp_header, mcp_param_headers, x_mcp_header_map
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

from tests.upstreams.behind import gateway, text_of
from tests.upstreams.raw import raw_http
from tests.upstreams.servers.http_server import HttpServer, serving
from tests.ways import QUICK_WAYS, STATELESS, Way
from toolpost.protocol.mirrored import BadAnnotation, MirroredArguments
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry-Run"},
        "where": {"type": "object", "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}}},
        "plain": {"type": "string"},
    },
}
ODD = {
    "type": "object",
    "properties": {"a": {"type": "number", "x-mcp-header": "A"}},
}
ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"region": "eu-west"},
    {"region": "Zürich", "plain": "x"},
    {"region": " edges "},
    {"region": ""},
    {"region": "a\r\nhost: evil"},
    {"region": "=?base64?eA==?="},
    {"count": 7, "dry": True},
    {"count": -(10**30), "dry": False},
    {"count": 7.0},
    {"where": {"zone": "☃"}},
    {"where": {}},
]


@asynccontextmanager
async def sdk_server(*tools: Tool) -> AsyncIterator[str]:
    """Serve what the official SDK makes of these tools, which refuses a call whose headers do not match."""

    async def list_tools(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=list(tools))

    async def call_tool(_context: Any, params: Any) -> CallToolResult:
        return CallToolResult(content=[TextContent(text=repr(sorted((params.arguments or {}).items())))])

    server = Server[Any]("mirrors", on_list_tools=list_tools, on_call_tool=call_tool)
    manager = StreamableHTTPSessionManager(app=server)
    async with manager.run(), serving(manager.handle_request) as url:
        yield url


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_server_that_asks_for_headers_is_sent_them(way: Way, arguments: dict[str, Any]) -> None:
    async with sdk_server(Tool(name="move", input_schema=SCHEMA)) as url:
        async with gateway(ServerSpec(name="up", url=url), way=way) as (_, client):
            await client.list_tools()
            answer = await client.call_tool("up__move", arguments)

    assert text_of(answer) == repr(sorted(arguments.items()))


async def test_the_server_does_refuse_a_call_without() -> None:
    async with sdk_server(Tool(name="move", input_schema=SCHEMA)) as url, raw_http(url, is_stateless=True) as ask:
        answer = await ask("tools/call", {"name": "move", "arguments": {"region": "eu"}})

    assert answer["error"]["code"] == -32020


async def test_an_older_server_is_sent_none() -> None:
    server = HttpServer(version="2025-11-25")
    server.tools = [{"name": "echo", "inputSchema": SCHEMA}]
    async with serving(server) as url, gateway(ServerSpec(name="up", url=url)) as (_, client):
        await client.call_tool("up__echo", {"region": "eu"})

    assert not any(name.startswith("mcp-param") for headers in server.headers for name in headers)


async def test_headers_are_of_the_call_alone() -> None:
    server = HttpServer(version=STATELESS)
    server.tools = [{"name": "echo", "inputSchema": SCHEMA}]
    async with serving(server) as url, gateway(ServerSpec(name="up", url=url)) as (_, client):
        async with anyio.create_task_group() as tasks:
            for region in ("eu", "us"):
                tasks.start_soon(client.call_tool, "up__echo", {"region": region})

    sent = [headers.get("mcp-param-region") for headers in server.headers if headers.get("mcp-name") == "echo"]
    assert sorted(map(str, sent)) == ["eu", "us"]


async def test_a_tool_that_mirrors_what_cannot_be_is_refused_alone() -> None:
    fine, odd = Tool(name="move", input_schema=SCHEMA), Tool(name="odd", input_schema=ODD)
    async with sdk_server(fine, odd) as url, gateway(ServerSpec(name="up", url=url)) as (app, client):
        listed = [tool.name for tool in (await client.list_tools()).tools]
        [refused] = app.servers.providers["up"].refused

    assert listed == ["up__move"]
    assert "x-mcp-header of `a`" in refused.message


SCHEMAS: list[Any] = [
    SCHEMA,
    ODD,
    {},
    True,
    {"x-mcp-header": "Root"},
    {"properties": {"a": {"type": "string", "x-mcp-header": 3}}},
    {"properties": {"a": {"type": "string", "x-mcp-header": "no blank"}}},
    {"properties": {"a": {"type": "string", "x-mcp-header": ""}}},
    {"properties": {"a": {"type": ["string"], "x-mcp-header": "A"}}},
    {"properties": {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}},
    {"properties": {"a": {"items": {"type": "string", "x-mcp-header": "A"}}}},
    {"properties": {"a": {"default": {"x-mcp-header": "A"}}}},
    {"$defs": {"a": {"type": "string", "x-mcp-header": "A"}}},
    {"anyOf": [{"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}]},
    {"properties": {"x-mcp-header": {"type": "string"}}},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_the_rules_are_those_of_the_sdk(schema: Any) -> None:
    if find_invalid_x_mcp_header(schema) is not None:
        with pytest.raises(BadAnnotation):
            MirroredArguments(schema)
        return

    mirrors, known = MirroredArguments(schema), x_mcp_header_map(schema)
    for arguments in ({"a": "x", "x-mcp-header": "y"}, *ARGUMENTS):
        theirs = {name.lower().encode(): value.encode() for name, value in mcp_param_headers(known, arguments).items()}
        assert dict(mirrors.headers_for(arguments)) == theirs
