"""The MCP server that a reader of the guides has already."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("mine")


@server.tool()
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}!"


if __name__ == "__main__":
    server.run("stdio")
