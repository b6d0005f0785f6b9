"""The paths of the HTTP endpoint, and what of all tools each of MCP's shows."""

from typing import Final

from toolpost.discovery import EVERYTHING, View

MCP_PATH: Final = "/mcp"
HEALTH_PATH: Final = "/healthz"
SERVERS_PATH: Final = "/api/servers"

_ONE: Final = f"{MCP_PATH}/server/"
_TAGGED: Final = f"{MCP_PATH}/tags/"


def view_of(path: str) -> View | None:
    """Say what a path shows: `/mcp`, `/mcp/server/NAME` or `/mcp/tags/a,b`; None for one that is not MCP's."""
    if path == MCP_PATH:
        return EVERYTHING
    if path.startswith(_ONE):
        return View(source=path.removeprefix(_ONE))
    if path.startswith(_TAGGED):
        return View(tags=frozenset(tag for tag in path.removeprefix(_TAGGED).split(",") if tag))
    return None
