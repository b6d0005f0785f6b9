"""FastMCP's proxy: `create_proxy` of one client that is opened once and kept. `… http PORT URL`.

`create_proxy(url)` would open a client, and with it a TLS context, for every request, which costs a hundred times as much.
"""

import sys

import anyio
import uvicorn
from fastmcp import Client
from fastmcp.server import create_proxy

from bench.servers.uvicorned import config_of


async def serve(port: int, url: str) -> None:
    async with Client(url) as client:
        proxy = create_proxy(client, name="bench")
        await uvicorn.Server(config_of(proxy.http_app(json_response=True), port)).serve()


if __name__ == "__main__":
    anyio.run(serve, int(sys.argv[2]), sys.argv[3], backend_options={"use_uvloop": True})
