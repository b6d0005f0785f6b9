"""Everything but `tools/call` and `tools/list`, through the official SDK. Imported late, by `late.py` alone."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import validate_mcp_param_headers
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from toolpost.contracts.ids import JsonObject
from toolpost.contracts.version import __version__
from toolpost.endpoints.listing import SERVER_NAME
from toolpost.protocol.rpc import INVALID_REQUEST, ProtocolError

logging.getLogger("mcp").setLevel(logging.WARNING)

INSTRUCTIONS = (
    "Every tool here is held to its JSON Schema. A refused call names each fault by path and says what was expected: "
    "mend the arguments and call again."
)


async def _never(*_: Any) -> NoReturn:
    """Stand for `tools/list` and `tools/call`, so that the capability is announced; the lean lane answers both."""
    raise AssertionError("the lean lane answers this method")


class SdkServer:
    """The SDK's server, with a way in for duplex connections and one for HTTP."""

    def __init__(self) -> None:
        self._server: Server[Any] = Server(
            SERVER_NAME,
            version=__version__,
            title="Toolpost",
            instructions=INSTRUCTIONS,
            on_list_tools=_never,
            on_call_tool=_never,
        )

    @asynccontextmanager
    async def open_connection(self, deliver: Callable[[bytes], None]) -> AsyncIterator["SdkConnection"]:
        """Serve one duplex connection; `deliver` takes what the SDK says to the client."""
        to_sdk, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](64)
        to_client, from_sdk = anyio.create_memory_object_stream[SessionMessage](64)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_deliver_all, from_sdk, deliver)
            tasks.start_soon(self._server.run, from_client, to_client, self._server.create_initialization_options())
            try:
                yield SdkConnection(to_sdk)
            finally:
                to_sdk.close()
                tasks.cancel_scope.cancel()

    def http_manager(self, *, body_limit: int) -> StreamableHTTPSessionManager:
        """Return what serves HTTP. Sessions end when our own table says so: the SDK does not see the lean lane's calls."""
        return StreamableHTTPSessionManager(
            app=self._server, session_idle_timeout=None, max_request_body_size=body_limit
        )


class SdkConnection:
    """One client's messages on their way to the SDK."""

    def __init__(self, stream: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        self._stream = stream

    async def feed(self, raw: bytes) -> None:
        """Pass a message on."""
        try:
            message = mcp_types.jsonrpc_message_adapter.validate_json(raw, by_name=False)
        except ValidationError as error:
            raise ProtocolError(INVALID_REQUEST, "The message is not a JSON-RPC request") from error
        await self._stream.send(SessionMessage(message))


async def _deliver_all(stream: MemoryObjectReceiveStream[SessionMessage], deliver: Callable[[bytes], None]) -> None:
    async with stream:
        async for item in stream:
            deliver(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode())


def parameter_header_problem(
    schema: JsonObject | bool, arguments: JsonObject, headers: Mapping[str, str]
) -> str | None:
    """Say where `Mcp-Param-*` headers and arguments disagree, for the rare schema that mirrors arguments into headers."""
    rejection = validate_mcp_param_headers(schema, arguments, headers)
    return rejection.message if rejection else None
