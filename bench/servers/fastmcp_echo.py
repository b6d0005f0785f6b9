"""FastMCP's echo: schemas from type hints. `… http PORT json|events` or `… stdio`."""

import sys

from fastmcp import FastMCP
from typing_extensions import TypedDict

server: FastMCP[None] = FastMCP("bench", version="1.0.0")


class Echoed(TypedDict):
    text: str


@server.tool
async def echo(text: str) -> Echoed:
    """Return the text."""
    return {"text": text}


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio", show_banner=False)
    else:
        from bench.servers.uvicorned import run

        run(server.http_app(json_response=sys.argv[3] == "json"), int(sys.argv[2]))
