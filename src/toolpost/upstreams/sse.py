"""Servers of the older HTTP+SSE transport, through the client of the MCP SDK: they are rare, so it need not be fast."""

import logging
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import anyio

from toolpost.base.events import event
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.upstreams.notifications import NotificationListener
from toolpost.upstreams.peer import Peer
from toolpost.upstreams.spec import ServerSpec

_log = logging.getLogger("toolpost.upstreams")


@asynccontextmanager
async def open_sse_server(
    spec: ServerSpec, *, on_notification: NotificationListener, on_gone: Callable[[str], None]
) -> AsyncIterator[Peer]:
    """Connect; leaving closes the connection."""
    # Imported here: the SDK takes over a second to load, and few servers need it.
    import mcp_types
    from mcp.client.sse import sse_client
    from mcp.shared.message import SessionMessage

    assert spec.url is not None
    to_server, outbox = anyio.create_memory_object_stream[bytes](math.inf)
    peer = Peer(spec.name, to_server.send_nowait, on_notification=on_notification)

    async def read(stream: Any) -> None:
        async for item in stream:
            if isinstance(item, Exception):
                event(_log, logging.WARNING, "invalid message from server", server=spec.name, reason=str(item)[:200])
            else:
                peer.take(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode())
        reason = "it closed its event stream"
        peer.lose(reason)
        on_gone(reason)

    async def write(stream: Any) -> None:
        async for raw in outbox:
            await stream.send(SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(raw, by_name=False)))

    async with (
        to_server,
        outbox,
        _connect(sse_client(spec.url, headers=dict(spec.headers))) as (reader, writer),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(read, reader)
        tasks.start_soon(write, writer)
        try:
            yield peer
        finally:
            peer.lose("it was stopped")
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def _connect(connecting: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
    """Connect, and translate errors of the connection, but not those of the body."""
    async with AsyncExitStack() as stack:
        try:
            streams = await stack.enter_async_context(connecting)
        except Exception as error:
            raise _translate_error(error) from error
        yield streams


def _translate_error(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return UpstreamUnavailable(
            f"it refused access (HTTP {status})", hint="check the `headers` of this server: a token may be missing"
        )
    if status is not None or type(error).__name__ == "SSEError":
        suffix = f" (HTTP {status})" if status is not None else ""
        return UpstreamUnavailable(
            f"there is no MCP server at this address{suffix}", hint="check the `url` of this server, and the path in it"
        )
    return error
