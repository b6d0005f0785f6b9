"""Toolpost: one MCP endpoint where every tool is held to its contract. This page is what a tool's author imports."""

from toolpost.authoring import Context, Plugin, Result, Tool, tool
from toolpost.authoring.hookspecs import hookimpl
from toolpost.contracts.contract import Keyed
from toolpost.contracts.envelope import ResultStyle
from toolpost.contracts.errors import (
    CapabilityMissing,
    ErrorCode,
    Forbidden,
    InvalidArguments,
    NotFound,
    QueueOverloaded,
    ToolFailed,
    ToolpostError,
)
from toolpost.contracts.version import __version__

__all__ = [
    "CapabilityMissing",
    "Context",
    "ErrorCode",
    "Forbidden",
    "InvalidArguments",
    "Keyed",
    "NotFound",
    "Plugin",
    "QueueOverloaded",
    "Result",
    "ResultStyle",
    "Tool",
    "ToolFailed",
    "ToolpostError",
    "__version__",
    "hookimpl",
    "tool",
]
