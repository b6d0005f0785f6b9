"""A client that reads a resource or gets a prompt through the SDK, as the server behind it may turn to it."""

from collections.abc import Hashable
from typing import Any

import msgspec
from mcp.shared.exceptions import MCPError

from toolpost.contracts.caller import Caller
from toolpost.contracts.ids import JsonObject
from toolpost.protocol.era import LOG_LEVEL, MODERN
from toolpost.protocol.rpc import encode
from toolpost.upstreams.asking import METHOD_NOT_FOUND, asked_for
from toolpost.upstreams.wire import ServerRefused


class SdkRespondent:
    """Asks through the SDK's own session: a request of its own before, and nothing in the stateless era.

    There a server of the same era asks by its result, which is passed on; one of the handshake era has nobody to ask.
    """

    def __init__(self, context: Any, caller: Caller) -> None:
        self.takes_rounds: bool = context.protocol_version == MODERN.version
        self.client: Hashable = (caller.id, caller.session or object())
        self._context = context
        declared = context.session.client_capabilities
        self.capabilities: JsonObject = asked_for(
            declared.model_dump(by_alias=True, mode="json", exclude_none=True) if declared is not None else None
        )
        level = (context.meta or {}).get(LOG_LEVEL)
        self.log_level: str | None = level if isinstance(level, str) else None

    def hears(self, _level: str) -> bool:
        """Logs are left to the session as a whole."""
        return False

    async def ask(self, method: str, params: bytes) -> bytes:
        """Put a question to the client."""
        if self.takes_rounds:
            raise ServerRefused(METHOD_NOT_FOUND, f"{method} can only be asked during a tool call, for this client")
        channel = self._context.session._request_outbound  # noqa: SLF001 (its typed methods drop what they do not know)
        try:
            return encode(await channel.send_raw_request(method, msgspec.json.decode(params) or None))
        except MCPError as error:
            raise ServerRefused(error.code, error.message, error.error.data) from error

    def tell(self, method: str, params: bytes) -> None:
        """Nothing is told here: `hears` says so."""
