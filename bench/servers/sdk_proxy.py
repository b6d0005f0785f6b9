"""A plain proxy of the official SDK's parts: its low-level server in front, one kept client behind.

`… http PORT TARGET` or `… stdio TARGET`, where the target is a URL or a command in JSON.
"""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams


def client_of(target: str) -> Client:
    """Make the one client that all calls share, as such a proxy is written: it is opened with the server."""
    if target.startswith("http"):
        return Client(target)
    command, *arguments = json.loads(target)
    return Client(StdioServerParameters(command=command, args=arguments))


def proxy_of(target: str) -> Server[Client]:
    """Make a server that passes tools and calls on."""
    schemas: dict[str, dict[str, Any]] = {}

    @asynccontextmanager
    async def lifespan(_server: Server[Client]) -> AsyncIterator[Client]:
        async with client_of(target) as client:
            listed = await client.list_tools()
            schemas.update({tool.name: tool.input_schema for tool in listed.tools})
            yield client

    async def list_tools(context: Any, _params: PaginatedRequestParams | None) -> ListToolsResult:
        client: Client = context.lifespan_context
        return await client.list_tools()

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        client: Client = context.lifespan_context
        return await client.call_tool(params.name, params.arguments)

    return Server(
        "bench",
        version="1.0.0",
        lifespan=lifespan,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        # Otherwise the SDK asks `list_tools` on calls of the stateless era.
        get_tool_input_schema=schemas.get,
    )


async def serve_stdio(proxy: Server[Client]) -> None:
    async with stdio_server() as (read, write):
        await proxy.run(read, write, proxy.create_initialization_options())


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        anyio.run(serve_stdio, proxy_of(sys.argv[2]), backend_options={"use_uvloop": True})
    else:
        from bench.servers.uvicorned import run

        run(proxy_of(sys.argv[3]).streamable_http_app(json_response=True), int(sys.argv[2]))
