"""What a plugin may implement. A plugin is a module or an object with any of these; `Plugin` implements them all."""

from collections.abc import Awaitable, Iterable

import pluggy

from toolpost.authoring.tool import Tool

ENTRY_POINT_GROUP = "toolpost"

hookspec = pluggy.HookspecMarker("toolpost")
hookimpl = pluggy.HookimplMarker("toolpost")


@hookspec
def toolpost_tools() -> Iterable[Tool]:  # type: ignore[empty-body]
    """Bring tools. Asked once, before `toolpost_start`."""


@hookspec
def toolpost_start() -> Awaitable[None] | None:
    """Get ready to serve. A plugin that fails here is reported by name, and the rest serves."""


@hookspec
def toolpost_stop() -> Awaitable[None] | None:
    """Let go of what `toolpost_start` took."""
