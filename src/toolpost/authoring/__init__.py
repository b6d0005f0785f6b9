"""The API for tool authors: a `Plugin` with tools, and the `Context` that a running tool receives."""

from toolpost.authoring.context import Context
from toolpost.authoring.conversation import Conversations, InvokeOptions, ToolCall, TurnInfo
from toolpost.authoring.middleware import CallRequest, CallResult, Middleware, Next, ToolInfo
from toolpost.authoring.plugin import Plugin
from toolpost.authoring.result import Result
from toolpost.authoring.tool import Tool, tool

__all__ = [
    "CallRequest",
    "CallResult",
    "Context",
    "Conversations",
    "InvokeOptions",
    "Middleware",
    "Next",
    "Plugin",
    "Result",
    "Tool",
    "ToolCall",
    "ToolInfo",
    "TurnInfo",
    "tool",
]
