"""The hooks that a plugin may implement. A plugin is a module or an object with any of these; `Plugin` implements them all.

Parts declare further ones in modules of their own (`HookSpecs` of `toolpost.parts`).
"""

from collections.abc import Awaitable, Iterable

import pluggy

from toolpost.authoring.middleware import Middleware
from toolpost.authoring.resource import Prompt, Resource
from toolpost.authoring.tool import Tool

ENTRY_POINT_GROUP = "toolpost"

hookspec = pluggy.HookspecMarker("toolpost")
hookimpl = pluggy.HookimplMarker("toolpost")


@hookspec
def toolpost_tools() -> Iterable[Tool]:  # type: ignore[empty-body]
    """Return the plugin's tools. Called once, before `toolpost_start`."""


@hookspec
def toolpost_resources() -> Iterable[Resource]:  # type: ignore[empty-body]
    """Return the plugin's resources. Called once, before `toolpost_start`."""


@hookspec
def toolpost_prompts() -> Iterable[Prompt]:  # type: ignore[empty-body]
    """Return the plugin's prompts. Called once, before `toolpost_start`."""


@hookspec
def toolpost_middleware() -> Iterable[Middleware]:  # type: ignore[empty-body]
    """Return middleware, which runs around every call of any tool, the outermost first. Called once, before `toolpost_start`."""


@hookspec
def toolpost_start() -> Awaitable[None] | None:
    """Prepare to serve. A plugin that fails here is reported by name, and the others are served."""


@hookspec
def toolpost_stop() -> Awaitable[None] | None:
    """Release what `toolpost_start` acquired."""
