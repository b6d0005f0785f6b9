"""The caller of a request that the SDK handles, and its view: a context variable, set where the request is handed to the SDK."""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from mcp.shared.exceptions import MCPError

from toolpost.base.caller import Caller
from toolpost.discovery import EVERYTHING, View
from toolpost.protocol.rpc import INVALID_PARAMS


@dataclass(frozen=True, kw_only=True)
class Viewer:
    """A caller and its view."""

    caller: Caller
    view: View = EVERYTHING


VIEWER: Final[ContextVar[Viewer]] = ContextVar("toolpost_viewer")


def require_initialized(context: Any) -> None:
    """Refuse a request before the handshake, as the SDK does for its own handlers."""
    if not context.session._connection.initialize_accepted:  # noqa: SLF001 (the SDK's own rule for its handlers)
        raise MCPError(INVALID_PARAMS, "Invalid request parameters", "")
