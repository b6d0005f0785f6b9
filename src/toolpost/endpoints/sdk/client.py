"""A client that reads a resource or gets a prompt through the SDK, for requests of the server behind it."""

from collections.abc import Hashable
from typing import Any

import anyio
import msgspec
from mcp.shared.exceptions import MCPError

from toolpost.base.caller import Caller
from toolpost.base.ids import JsonObject
from toolpost.protocol.rpc import encode
from toolpost.upstreams.server_requests import INTERNAL_ERROR, ROOTS_LIMIT_S, select_capabilities
from toolpost.upstreams.transport import ServerRefused


class SdkClientChannel:
    """Asks a client of the handshake era through the SDK's session. In the stateless era it is a `MultiRoundRequest` instead."""

    takes_input_required = False
    has_open_request = False

    def __init__(self, context: Any, caller: Caller) -> None:
        self.client: Hashable = (caller.id, caller.session or object())
        self._context = context
        declared = context.session.client_capabilities
        self.capabilities: JsonObject = select_capabilities(
            declared.model_dump(by_alias=True, mode="json", exclude_none=True) if declared is not None else None
        )
        self.log_level: str | None = None

    def wants_log(self, _level: str) -> bool:
        """False: log messages are sent to the session as a whole."""
        return False

    @property
    def _channel(self) -> Any:
        return self._context.session._request_outbound  # noqa: SLF001 (its typed methods drop what they do not know)

    async def ask(self, method: str, params: bytes) -> bytes:
        """Send a server request to the client; raise `ServerRefused` with its error."""
        try:
            return encode(await self._channel.send_raw_request(method, msgspec.json.decode(params) or None))
        except MCPError as error:
            raise ServerRefused(error.code, error.message, error.error.data) from error

    def tell(self, method: str, params: bytes) -> None:
        """Do nothing, in accordance with `wants_log`."""


class StandingClientChannel(SdkClientChannel):
    """Asks a client that has no request in flight, on the stream that belongs to no request."""

    @property
    def _channel(self) -> Any:
        return self._context.session._connection.outbound  # noqa: SLF001 (as above)

    async def ask(self, method: str, params: bytes) -> bytes:
        """The same within `STANDING_LIMIT_S`: there is no request whose deadline would limit it."""
        try:
            with anyio.fail_after(ROOTS_LIMIT_S):
                return await super().ask(method, params)
        except TimeoutError as error:
            raise ServerRefused(INTERNAL_ERROR, f"The client did not answer within {ROOTS_LIMIT_S:g} s") from error
