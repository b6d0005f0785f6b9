"""The official SDK's echo, high-level: schemas from type hints. `… http PORT json|events` or `… stdio`."""

import sys

from mcp.server.mcpserver import MCPServer
from typing_extensions import TypedDict

server: MCPServer[None] = MCPServer("bench", version="1.0.0", log_level="WARNING")


class Echoed(TypedDict):
    text: str


@server.tool()
async def echo(text: str) -> Echoed:
    """Return the text."""
    return {"text": text}


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        from bench.servers.uvicorned import run

        run(server.streamable_http_app(json_response=sys.argv[3] == "json"), int(sys.argv[2]))
