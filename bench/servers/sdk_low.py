"""The official SDK's echo, low-level: explicit schemas, nothing validated. `… http PORT json|events` or `… stdio`."""

import json
import sys
from typing import Any

import anyio
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool

TEXT: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}


async def list_tools(_context: Any, _params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(
        tools=[Tool(name="echo", description="Return the text.", input_schema=TEXT, output_schema=TEXT)]
    )


async def call_tool(_context: Any, params: CallToolRequestParams) -> CallToolResult:
    data = {"text": (params.arguments or {})["text"]}
    return CallToolResult(content=[TextContent(text=json.dumps(data))], structured_content=data)


def schema_of(name: str) -> dict[str, Any] | None:
    """Answer without a listing: otherwise the SDK asks `list_tools` on calls of the stateless era."""
    return TEXT if name == "echo" else None


server = Server(
    "bench",
    version="1.0.0",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    get_tool_input_schema=schema_of,
)


async def serve_stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        anyio.run(serve_stdio)
    else:
        from bench.servers.uvicorned import run

        run(server.streamable_http_app(json_response=sys.argv[3] == "json"), int(sys.argv[2]))
