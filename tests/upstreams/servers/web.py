"""The ordinary server over HTTP, in a process of its own: prints its URL, and ends when its stdin does.

`--handshake-only` makes it one from before the stateless era.
"""

import asyncio
import sys
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from tests.upstreams.servers import sdk_server
from tests.upstreams.servers.http_server import serving

manager = StreamableHTTPSessionManager(app=sdk_server.server)


async def handshake_only(scope: Any, receive: Any, send: Any) -> None:
    """Answer as servers did that ask for a session first."""
    if (b"mcp-method", b"server/discover") in scope["headers"]:
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": b"Bad Request: no session"})
    else:
        await manager.handle_request(scope, receive, send)


async def main() -> None:
    app = handshake_only if "--handshake-only" in sys.argv else manager.handle_request
    async with manager.run(), serving(app) as url:
        print(url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
