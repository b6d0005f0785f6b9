"""A server of the older HTTP+SSE transport is found out and served like any other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from mcp import MCPError
from mcp.server.sse import SseServerTransport
from starlette.responses import Response

from tests.hostile.attacks import attack
from tests.upstreams.behind import ONE_OF_EACH, gateway, hostile, report, text_of
from tests.upstreams.servers.http_server import serving
from tests.upstreams.servers.sdk_server import server
from tests.ways import Way
from toolpost.upstreams.spec import ServerSpec, TransportKind

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks"), pytest.mark.wire]


@asynccontextmanager
async def sse_server(kind: bytes | None = None) -> AsyncIterator[str]:
    """Serve the ordinary server by SSE alone; `kind` is the content type that it names for its events."""
    transport = SseServerTransport("/messages/")

    async def answer(send: Any, message: Any) -> None:
        if kind is not None and message["type"] == "http.response.start":
            others = [(name, value) for name, value in message["headers"] if name.lower() != b"content-type"]
            message = {**message, "headers": [*others, (b"content-type", kind)]}
        await send(message)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/messages/":
            await transport.handle_post_message(scope, receive, send)
        elif scope["method"] == "GET":
            async with transport.connect_sse(scope, receive, partial(answer, send)) as (reader, writer):
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


@attack("server", "names a charset for its events that takes long to decode", "events are read as UTF-8")
async def test_events_are_utf8_whatever_the_server_says() -> None:
    async with sse_server(b"text/event-stream; charset=punycode") as url:
        async with gateway(ServerSpec(name="up", url=url, transport="sse")) as (_, client):
            answer = await client.call_tool("up__add", {"a": 1, "b": 2})

    assert text_of(answer) == "3 \u00bd"
