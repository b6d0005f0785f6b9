"""The paths of the HTTP endpoint, and what of all tools each of MCP's shows."""

from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from toolpost.discovery import EVERYTHING, View
from toolpost.discovery.views import NOTHING

MCP_PATH: Final = "/mcp"
HEALTH_PATH: Final = "/healthz"
METADATA_PATH: Final = "/.well-known/oauth-protected-resource"
METRICS_PATH: Final = "/metrics"
SERVERS_PATH: Final = "/api/servers"

_VIEW_KEY: Final = "toolpost.view"
_ONE: Final = f"{MCP_PATH}/server/"
_TAGGED: Final = f"{MCP_PATH}/tags/"


def view_of(path: str, *, is_bare: bool) -> View | None:
    """Say what a path shows: `/mcp`, `/mcp/server/NAME` or `/mcp/tags/a,b`; None for one that is not MCP's.

    `is_bare` says whether a path of one server shows its tools under their own names.
    """
    if path == MCP_PATH:
        return EVERYTHING
    if path.startswith(_ONE):
        return View(source=path.removeprefix(_ONE), is_bare=is_bare)
    if path.startswith(_TAGGED):
        return View(tags=frozenset(tag for tag in path.removeprefix(_TAGGED).split(",") if tag))
    return None


def show(scope: MutableMapping[str, Any], view: View) -> None:
    """Note in the scope of a request what its caller sees on its path, for whoever answers it."""
    scope[_VIEW_KEY] = view


def shown_by(scope: Mapping[str, Any]) -> View:
    """Return what was noted; where nothing was, nothing is seen."""
    view = scope.get(_VIEW_KEY, NOTHING)
    assert isinstance(view, View)
    return view
