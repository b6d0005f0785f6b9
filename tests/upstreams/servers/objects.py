"""Server objects with the same tools, written for the SDK's `MCPServer`, for its `Server`, and for FastMCP."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
from fastmcp import Context as FastContext
from fastmcp import FastMCP
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel


class Crash(BaseException):
    """Nothing that a handler is expected to raise: it ends the loop of the server."""


class Answer(BaseModel):
    name: str


@dataclass
class Seen:
    """What happened inside of a server object."""

    lifespans: int = 0
    ended: int = 0
    cancelled: int = 0
    waiting: int = 0
    both_wait: anyio.Event = field(default_factory=anyio.Event)


def make_sdk(seen: Seen) -> MCPServer:
    @asynccontextmanager
    async def lifespan(_server: Any) -> AsyncIterator[dict[str, int]]:
        seen.lifespans += 1
        async with anyio.create_task_group():
            yield {"rows": 7}
        seen.ended += 1

    mcp = MCPServer("things", lifespan=lifespan)
    _add_common(mcp, seen)

    @mcp.tool()
    def rows(ctx: Context) -> int:
        return int(ctx.request_context.lifespan_context["rows"])

    @mcp.tool()
    async def steps(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "half")
        return "done"

    @mcp.tool()
    async def ask(who: str, ctx: Context) -> str:
        await _wait_for_both(seen, who)
        answer: Any = await ctx.elicit(f"Who is {who}?", Answer)
        return f"{who}: {answer.data.name}"

    return mcp


def make_fastmcp(seen: Seen) -> "FastMCP[Any]":
    @asynccontextmanager
    async def lifespan(_server: Any) -> AsyncIterator[dict[str, int]]:
        seen.lifespans += 1
        yield {"rows": 7}
        seen.ended += 1

    mcp: FastMCP[Any] = FastMCP("things", lifespan=lifespan)
    _add_common(mcp, seen)

    @mcp.tool
    def rows(ctx: FastContext) -> int:
        return int(ctx.lifespan_context["rows"])

    @mcp.tool
    async def steps(ctx: FastContext) -> str:
        await ctx.report_progress(1, 2, "half")
        return "done"

    @mcp.tool
    async def ask(who: str, ctx: FastContext) -> str:
        await _wait_for_both(seen, who)
        answer: Any = await ctx.elicit(f"Who is {who}?", Answer)
        return f"{who}: {answer.data.name}"

    return mcp


def make_low_level(_seen: Seen) -> "Server[Any]":
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

    async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="double", input_schema=schema)])

    async def call_tool(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text = str(2 * (params.arguments or {})["a"])
        return types.CallToolResult(content=[types.TextContent(text=text)])

    return Server("things", on_list_tools=list_tools, on_call_tool=call_tool)


MAKERS: dict[str, Callable[[Seen], Any]] = {"sdk": make_sdk, "fastmcp": make_fastmcp}


def _add_common(mcp: Any, seen: Seen) -> None:
    @mcp.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @mcp.tool()
    def fail() -> str:
        raise ValueError("no such row")

    @mcp.tool()
    async def wait() -> str:
        seen.waiting += 1
        try:
            await anyio.sleep_forever()
        except BaseException:
            seen.cancelled += 1
            raise
        return "never"

    @mcp.tool()
    async def leave() -> str:
        sys.exit(3)

    @mcp.tool()
    async def crash() -> str:
        raise Crash("boom")

    @mcp.resource("things://one")
    def one() -> str:
        return "the first thing"

    @mcp.resource("things://by-name/{name}")
    def by_name(name: str) -> str:
        return f"the thing {name}"

    @mcp.prompt()
    def describe(thing: str) -> str:
        return f"Describe {thing}."


async def _wait_for_both(seen: Seen, who: str) -> None:
    """Return when two calls are in flight, unless the call is alone by its name."""
    if who == "one":
        return
    seen.waiting += 1
    if seen.waiting == 2:
        seen.both_wait.set()
    await seen.both_wait.wait()


mcp = make_sdk(Seen())
low = make_low_level(Seen())
fast = make_fastmcp(Seen())
unnamed: "FastMCP[Any]" = FastMCP()
