"""Toolpost: one MCP endpoint where every tool is held to its contract. This page is what a tool's author imports.

The names are looked up when they are first used: the command line loads this package, and does not need most of them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolpost.authoring import (
        CallRequest,
        CallResult,
        Context,
        Middleware,
        Next,
        Plugin,
        Result,
        Tool,
        tool,
    )
    from toolpost.authoring.hookspecs import hookimpl
    from toolpost.base.version import __version__
    from toolpost.contracts.contract import Keyed
    from toolpost.contracts.envelope import ResultStyle
    from toolpost.contracts.errors import (
        CapabilityMissing,
        ErrorCode,
        Forbidden,
        InvalidArguments,
        NoIndex,
        NotFound,
        QueueOverloaded,
        ToolFailed,
        ToolpostError,
        Unauthorized,
        UpstreamUnavailable,
    )

_HOMES = {
    "toolpost.authoring": (
        "CallRequest",
        "CallResult",
        "Context",
        "Middleware",
        "Next",
        "Plugin",
        "Result",
        "Tool",
        "tool",
    ),
    "toolpost.authoring.hookspecs": ("hookimpl",),
    "toolpost.contracts.contract": ("Keyed",),
    "toolpost.contracts.envelope": ("ResultStyle",),
    "toolpost.contracts.errors": (
        "CapabilityMissing",
        "ErrorCode",
        "Forbidden",
        "InvalidArguments",
        "NoIndex",
        "NotFound",
        "QueueOverloaded",
        "ToolFailed",
        "ToolpostError",
        "Unauthorized",
        "UpstreamUnavailable",
    ),
    "toolpost.base.version": ("__version__",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "CallRequest",
    "CallResult",
    "CapabilityMissing",
    "Context",
    "ErrorCode",
    "Forbidden",
    "InvalidArguments",
    "Keyed",
    "Middleware",
    "Next",
    "NoIndex",
    "NotFound",
    "Plugin",
    "QueueOverloaded",
    "Result",
    "ResultStyle",
    "Tool",
    "ToolFailed",
    "ToolpostError",
    "Unauthorized",
    "UpstreamUnavailable",
    "__version__",
    "hookimpl",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
