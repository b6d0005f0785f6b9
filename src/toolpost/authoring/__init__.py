"""The API for plugin authors: a `Plugin` with tools, resources and prompts, and the `Context` that its functions receive."""

from toolpost.authoring.client import Accepted, Declined, Root, Sample
from toolpost.authoring.content import Audio, Content, File, Icon, Image, Link, Text
from toolpost.authoring.context import Context
from toolpost.authoring.message import Message
from toolpost.authoring.middleware import CallRequest, CallResult, Middleware, Next, ToolInfo
from toolpost.authoring.plugin import Plugin
from toolpost.authoring.resource import Prompt, Resource
from toolpost.authoring.result import Result
from toolpost.authoring.tool import Tool, tool

__all__ = [
    "Accepted",
    "Audio",
    "CallRequest",
    "CallResult",
    "Content",
    "Context",
    "Declined",
    "File",
    "Icon",
    "Image",
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
    "ToolInfo",
    "tool",
]
