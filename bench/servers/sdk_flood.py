"""A server of the official SDK's on stdio whose one tool reports progress as often as it is told to."""

from mcp.server.mcpserver import Context, MCPServer

server: MCPServer[None] = MCPServer("flood", version="1.0.0", log_level="WARNING")


@server.tool()
async def flood(count: int, text: str, ctx: Context) -> str:
    """Report progress this often, then return the text."""
    for number in range(1, count + 1):
        await ctx.report_progress(number, count, f"step {number}")
    return text


if __name__ == "__main__":
    server.run("stdio")
