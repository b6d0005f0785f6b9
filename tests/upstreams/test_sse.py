"""A server of the older HTTP+SSE transport is found out and served like any other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import MCPError
from mcp.server.sse import SseServerTransport
from starlette.responses import Response

from tests.upstreams.behind import ONE_OF_EACH, gateway, hostile, report, text_of
from tests.upstreams.servers.http_server import serving
from tests.upstreams.servers.sdk_server import server
from tests.ways import Way
from toolpost.upstreams.spec import ServerSpec, TransportKind

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks"), pytest.mark.wire]


@asynccontextmanager
async def sse_server() -> AsyncIterator[str]:
    """Serve the ordinary server by SSE alone."""
    transport = SseServerTransport("/messages/")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/messages/":
            await transport.handle_post_message(scope, receive, send)
        elif scope["method"] == "GET":
            async with transport.connect_sse(scope, receive, send) as (reader, writer):
                await server.run(reader, writer, server.create_initialization_options())
        else:
            await Response(status_code=405)(scope, receive, send)

    async with serving(app) as url:
        yield url


@pytest.mark.parametrize("transport", [None, "sse"])
@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_an_older_server_is_met_by_sse(way: Way, transport: TransportKind | None) -> None:
    async with sse_server() as url:
        spec = ServerSpec(name="up", url=url, transport=transport)
        async with gateway(spec, hostile("good"), way=way) as (app, client):
            answer = await client.call_tool("up__add", {"a": 1, "b": 2})
            with pytest.raises(MCPError, match="never"):
                await client.call_tool("up__refuse")
            seen = report(app)

    assert answer.structured_content == {"sum": 3}
    assert text_of(answer) == "3 ½"
    assert (seen.transport, seen.state) == ("sse", "ready")
