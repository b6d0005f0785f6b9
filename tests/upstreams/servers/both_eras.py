"""A server that knows both eras, and can ask its client in the handshake era alone: on stdio, or as an application."""

import os
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.message import ServerMessageMetadata

from tests.upstreams.servers.asking import QUESTIONS, STATELESS, ask, in_rounds, said, text


async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
    tools = [
        types.Tool(name=name, input_schema={"type": "object"})
        for name in ("version", "elicit", "ctx_elicit", "caught", "rounds")
    ]
    return types.ListToolsResult(tools=tools)


async def call_tool(
    context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    if params.name == "version":
        return text({"version": context.protocol_version, "pid": os.getpid()})
    if params.name == "rounds":
        # Whatever the era: in the handshake era the SDK refuses such a result.
        return in_rounds(params, "form", 1)
    if params.name == "caught" and context.protocol_version == STATELESS:
        # As the TypeScript SDK answers for a tool that has raised.
        said_by_sdk = (
            f"Server-to-client requests are not available on protocol revision {STATELESS}: 'elicitation/create'"
        )
        return types.CallToolResult(content=[types.TextContent(text=said_by_sdk)], is_error=True)
    if params.name in ("ctx_elicit", "caught"):
        # Without catching the error of an era in which it cannot be asked.
        related = ServerMessageMetadata(related_request_id=context.request_id)
        return text(said(await context.session.send_request(*QUESTIONS["form"], metadata=related)))
    return text(await ask(context, "form"))


def make_server() -> "Server[Any]":
    return Server[Any]("both", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def main() -> None:
    from mcp.server.stdio import stdio_server

    server = make_server()
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
