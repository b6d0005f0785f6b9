"""An ordinary server, made with the official SDK, on stdio: what the gateway must not change anything of."""

from typing import Any

from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ImageContent,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

ADD_OUT = {"type": "object", "properties": {"sum": {"$ref": "#/$defs/Number"}}, "$defs": {"Number": {"type": "number"}}}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

TOOLS = [
    Tool.model_validate(
        {
            "name": "add",
            "title": "Add up",
            "description": "Adds numbers, exactly: ½ + ¼",
            "inputSchema": {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "required": ["b", "a"],
                "properties": {"b": {"$ref": "#/$defs/Number"}, "a": {"$ref": "#/$defs/Number"}},
                "$defs": {"Number": {"$anchor": "number", "type": "number", "x-unit": "none"}},
            },
            "outputSchema": ADD_OUT,
            "annotations": {"readOnlyHint": True, "title": "Add"},
            "_meta": {"example.com/team": "sums"},
        }
    ),
    *(
        Tool(name=name, input_schema={"type": "object"})
        for name in ("picture", "fail", "refuse", "dotted.name", "mixed")
    ),
]


async def list_tools(
    _context: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None
) -> ListToolsResult:
    if params is None or params.cursor is None:
        return ListToolsResult(tools=TOOLS[:3], next_cursor="")
    return ListToolsResult(tools=TOOLS[3:])


async def call_tool(_context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
    arguments = params.arguments or {}
    match params.name:
        case "add":
            total = arguments["a"] + arguments["b"]
            return CallToolResult(content=[TextContent(text=f"{total} ½")], structured_content={"sum": total})
        case "picture":
            return CallToolResult(content=[ImageContent(data=PIXEL, mime_type="image/png")], _meta={"example.com/n": 1})
        case "fail":
            return CallToolResult(content=[TextContent(text="it went wrong")], is_error=True)
        case "mixed":
            text = TextContent(text="a\u2028b \U0001f600", annotations={"audience": ["user"], "priority": 0.5})  # type: ignore[arg-type]
            return CallToolResult(content=[text, TextContent(text="")])
        case "dotted.name":
            return CallToolResult(content=[TextContent(text="dotted")])
        case _:
            raise MCPError(code=-31002, message="never", data={"deep": [{"er": None}]})


server: Server[Any] = Server("ordinary", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def main() -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    import anyio

    anyio.run(main)
