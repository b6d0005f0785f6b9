"""A client in the same process, for tests: the connection of stdio, on streams in memory."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import uuid4

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.discovery import EVERYTHING, View
from toolpost.endpoints.calls import CallHandler
from toolpost.endpoints.duplex import ClientConnection
from toolpost.endpoints.sdk.lazy import LazySdk

BUFFER = math.inf
"""Unlimited: a client in the same process never waits, and no message to it is dropped."""

ClientStreams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def open_memory_endpoint(
    handler: CallHandler, sdk: LazySdk, *, grace_s: float = 1.0, view: View = EVERYTHING
) -> AsyncIterator[ClientStreams]:
    """Serve one client; yields the streams that `mcp.Client` takes as a transport."""
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](BUFFER)
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage](BUFFER)

    def send(raw: bytes) -> None:
        # The client may have closed its end while a message was on its way.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            to_client.send_nowait(SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(raw, by_name=False)))

    caller = Caller(id=CallerId("local"), transport="memory", session=uuid4().hex, is_admin=True)
    connection = ClientConnection(handler, sdk, caller=caller, send=send, view=view)
    async with to_client, from_server, to_server, from_client, anyio.create_task_group() as tasks:
        messages = _as_bytes(from_client)
        tasks.start_soon(lambda: connection.serve(messages, grace_s=grace_s))
        try:
            yield from_server, to_server
        finally:
            to_server.close()


async def _as_bytes(stream: MemoryObjectReceiveStream[SessionMessage]) -> AsyncIterator[bytes]:
    async for item in stream:
        yield item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
