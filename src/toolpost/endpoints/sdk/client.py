"""A client that reads a resource or gets a prompt through the SDK, for requests of the server behind it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import msgspec
from mcp.shared.exceptions import MCPError

from toolpost.base.caller import Caller
from toolpost.base.ids import JsonObject
from toolpost.endpoints.client_session import write_notification
from toolpost.protocol.rpc import encode
from toolpost.upstreams.server_requests import INTERNAL_ERROR, ROOTS_LIMIT_S, select_capabilities
from toolpost.upstreams.transport import ServerRefused

SEND_LIMIT_S: Final = 1.0


class SdkClientChannel:
    """Asks a client of the handshake era through the SDK's session. In the stateless era it is a `RoundsChannel` instead."""

    takes_input_required = False
    has_open_request = False

    def __init__(self, context: Any, caller: Caller, tell: Callable[[bytes], None] | None = None) -> None:
        """`tell` sends a notification with the response to the request; without it, none are sent."""
        self._tell = tell
        self.client: Hashable = (caller.id, caller.session or object())
        self._context = context
        declared = context.session.client_capabilities
        self.capabilities: JsonObject = select_capabilities(
            declared.model_dump(by_alias=True, mode="json", exclude_none=True) if declared is not None else None
        )
        self.log_level: str | None = None

    @property
    def can_tell(self) -> bool:
        return self._tell is not None

    def wants_log(self, _level: str) -> bool:
        """False: log messages are sent to the session as a whole."""
        return False

    @property
    def _channel(self) -> Any:
        return self._context.session._request_outbound  # noqa: SLF001 (its typed methods drop what they do not know)

    async def ask(self, method: str, params: bytes, *, key: str | None = None) -> bytes:  # noqa: ARG002 (only rounds name requests)
        """Send a server request to the client; raise `ServerRefused` with its error."""
        try:
            return encode(await self._channel.send_raw_request(method, msgspec.json.decode(params) or None))
        except MCPError as error:
            raise ServerRefused(error.code, error.message, error.error.data) from error

    def tell(self, method: str, params: bytes) -> None:
        if self._tell is not None:
            self._tell(write_notification(method, params))


class SessionChannel(SdkClientChannel):
    """Asks a client that has no request in flight, on the stream that belongs to no request."""

    @property
    def _channel(self) -> Any:
        return self._context.session._connection.outbound  # noqa: SLF001 (as above)

    async def ask(self, method: str, params: bytes, *, key: str | None = None) -> bytes:
        """The same within `ROOTS_LIMIT_S`: there is no request whose deadline would limit it."""
        try:
            with anyio.fail_after(ROOTS_LIMIT_S):
                return await super().ask(method, params, key=key)
        except TimeoutError as error:
            raise ServerRefused(INTERNAL_ERROR, f"The client did not answer within {ROOTS_LIMIT_S:g} s") from error


@asynccontextmanager
async def open_notifier(context: Any) -> AsyncIterator[Callable[[bytes], None]]:
    """Yield a function that sends a notification with the response to a request; leaving waits until all are sent.

    A client that does not read them is given `SEND_LIMIT_S`.
    """
    sending: set[asyncio.Task[None]] = set()

    def tell(raw: bytes) -> None:
        message = msgspec.json.decode(raw)
        notify = context.session._request_outbound.notify  # noqa: SLF001 (as above)
        task = asyncio.ensure_future(notify(message["method"], message.get("params") or None))
        sending.add(task)
        task.add_done_callback(sending.discard)

    try:
        yield tell
        if sending:
            await asyncio.wait(sending, timeout=SEND_LIMIT_S)
    finally:
        for task in sending:
            task.cancel()
