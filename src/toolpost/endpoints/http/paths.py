"""The paths of the HTTP endpoint, and the view that each MCP path gives."""

from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from toolpost.discovery import EVERYTHING, View
from toolpost.discovery.views import NOTHING

MCP_PATH: Final = "/mcp"
HEALTH_PATH: Final = "/healthz"
METADATA_PATH: Final = "/.well-known/oauth-protected-resource"
METRICS_PATH: Final = "/metrics"
OPENAPI_PATH: Final = "/api/openapi.json"

_VIEW_KEY: Final = "toolpost.view"
_ONE: Final = f"{MCP_PATH}/server/"
_TAGGED: Final = f"{MCP_PATH}/tags/"


def view_of(path: str) -> View | None:
    """Return the view of `/mcp`, `/mcp/server/NAME` or `/mcp/tags/a,b`; None for a path that is not MCP's.

    On the path of one server, tools have their own names, without the server's.
    """
    if path == MCP_PATH:
        return EVERYTHING
    if path.startswith(_ONE):
        return View(source=path.removeprefix(_ONE), is_bare=True)
    if path.startswith(_TAGGED):
        return View(tags=frozenset(tag for tag in path.removeprefix(_TAGGED).split(",") if tag))
    return None


def store_view(scope: MutableMapping[str, Any], view: View) -> None:
    """Store in the ASGI scope what the caller sees on this path."""
    scope[_VIEW_KEY] = view


def read_view(scope: Mapping[str, Any]) -> View:
    """Return the stored view; `NOTHING` if there is none."""
    view = scope.get(_VIEW_KEY, NOTHING)
    assert isinstance(view, View)
    return view
