"""A client that reads a resource or gets a prompt through the SDK, as the server behind it may turn to it."""

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


class SdkRespondent:
    """Asks through the SDK's own session, as the handshake era has it. A client of the stateless era is `Held` instead."""

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
        """Logs are left to the session as a whole."""
        return False

    @property
    def _channel(self) -> Any:
        return self._context.session._request_outbound  # noqa: SLF001 (its typed methods drop what they do not know)

    async def ask(self, method: str, params: bytes) -> bytes:
        """Put a question to the client."""
        try:
            return encode(await self._channel.send_raw_request(method, msgspec.json.decode(params) or None))
        except MCPError as error:
            raise ServerRefused(error.code, error.message, error.error.data) from error

    def tell(self, method: str, params: bytes) -> None:
        """Nothing is told here: `wants_log` says so."""


class StandingRespondent(SdkRespondent):
    """Asks a client of the handshake era that has nothing in flight, on the stream that belongs to no request."""

    @property
    def _channel(self) -> Any:
        return self._context.session._connection.outbound  # noqa: SLF001 (as above)

    async def ask(self, method: str, params: bytes) -> bytes:
        """Put a question to the client; nothing else limits how long it is waited for."""
        try:
            with anyio.fail_after(ROOTS_LIMIT_S):
                return await super().ask(method, params)
        except TimeoutError as error:
            raise ServerRefused(INTERNAL_ERROR, f"The client did not answer within {ROOTS_LIMIT_S:g} s") from error
