"""Toolpost's echo with type hints: what FastMCP and the SDK's high-level server are compared with."""

from typing_extensions import TypedDict

from toolpost import Plugin

plugin = Plugin("bench", version="1.0.0")


class Echoed(TypedDict):
    text: str


@plugin.tool
async def echo(text: str) -> Echoed:
    """Return the text."""
    return {"text": text}
