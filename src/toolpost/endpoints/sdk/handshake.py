"""Our rules for the handshake of the SDK's server: the negotiated revision, and the requests that wait for it."""

from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError

from toolpost.protocol.era import agree_version
from toolpost.protocol.rpc import INVALID_PARAMS


async def agree_revision(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Let the SDK agree on the revision that `agree_version` returns. Middleware of the SDK's server."""
    if ctx.method == "initialize" and isinstance(ctx.params, dict):
        requested = ctx.params.get("protocolVersion")
        if isinstance(requested, str):  # anything else is refused by the SDK
            # In place: the SDK reads the parameters again after all middleware.
            ctx.params["protocolVersion"] = agree_version(requested).version
    return await call_next(ctx)


def require_initialized(ctx: ServerRequestContext[Any, Any]) -> None:
    """Refuse a request before the handshake, as the SDK does for its own handlers."""
    if not ctx.session._connection.initialize_accepted:  # noqa: SLF001 (the SDK's own rule for its handlers)
        raise MCPError(INVALID_PARAMS, "Invalid request parameters", "")
