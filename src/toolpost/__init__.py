"""Toolpost: one MCP endpoint where every tool is held to its contract. This page is what authors and applications import.

The names are looked up when they are first used: the command line loads this package, and does not need most of them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolpost.authoring import (
        Accepted,
        Audio,
        CallRequest,
        CallResult,
        Content,
        Context,
        Conversations,
        Declined,
        File,
        Icon,
        Image,
        InvokeOptions,
        Link,
        Message,
        Middleware,
        Next,
        Plugin,
        Prompt,
        Resource,
        Result,
        Root,
        Sample,
        Text,
        Tool,
        ToolCall,
        ToolInfo,
        TurnInfo,
        tool,
    )
    from toolpost.authoring.hookspecs import hookimpl
    from toolpost.base.caller import Caller, ClientInfo, Principal
    from toolpost.base.ids import CallerId, ThreadId, TurnId
    from toolpost.base.turns import TurnEnded
    from toolpost.base.version import __version__
    from toolpost.contracts.contract import Keyed
    from toolpost.contracts.envelope import ResultStyle
    from toolpost.contracts.errors import (
        CapabilityMissing,
        ClientCannotAnswer,
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
    from toolpost.embedded import OpenToolpost, Toolpost
    from toolpost.protocol.rpc import ProtocolError
    from toolpost.store.key_values import Item

_HOMES = {
    "toolpost.authoring": (
        "Audio",
        "CallRequest",
        "CallResult",
        "Content",
        "Context",
        "Conversations",
        "Accepted",
        "Declined",
        "File",
        "Icon",
        "Image",
        "InvokeOptions",
        "Link",
        "Message",
        "Middleware",
        "Next",
        "Plugin",
        "Prompt",
        "Resource",
        "Result",
        "Root",
        "Sample",
        "Text",
        "Tool",
        "ToolCall",
        "ToolInfo",
        "TurnInfo",
        "tool",
    ),
    "toolpost.authoring.hookspecs": ("hookimpl",),
    "toolpost.base.caller": ("Caller", "ClientInfo", "Principal"),
    "toolpost.base.ids": ("CallerId", "ThreadId", "TurnId"),
    "toolpost.base.turns": ("TurnEnded",),
    "toolpost.contracts.contract": ("Keyed",),
    "toolpost.contracts.envelope": ("ResultStyle",),
    "toolpost.contracts.errors": (
        "CapabilityMissing",
        "ClientCannotAnswer",
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
    "toolpost.protocol.rpc": ("ProtocolError",),
    "toolpost.embedded": ("OpenToolpost", "Toolpost"),
    "toolpost.store.key_values": ("Item",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Accepted",
    "Audio",
    "CallRequest",
    "CallResult",
    "Caller",
    "CallerId",
    "CapabilityMissing",
    "ClientCannotAnswer",
    "ClientInfo",
    "Content",
    "Context",
    "Conversations",
    "Declined",
    "ErrorCode",
    "File",
    "Forbidden",
    "Icon",
    "Image",
    "InvalidArguments",
    "InvokeOptions",
    "Item",
    "Keyed",
    "Link",
    "Message",
    "Middleware",
    "Next",
    "NoIndex",
    "NotFound",
    "OpenToolpost",
    "Plugin",
    "Principal",
    "Prompt",
    "ProtocolError",
    "QueueOverloaded",
    "Resource",
    "Result",
    "ResultStyle",
    "Root",
    "Sample",
    "Text",
    "ThreadId",
    "Tool",
    "ToolCall",
    "ToolFailed",
    "ToolInfo",
    "Toolpost",
    "ToolpostError",
    "TurnEnded",
    "TurnId",
    "TurnInfo",
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
