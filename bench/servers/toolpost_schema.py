"""Toolpost's echo with explicit schemas: what the SDK's low-level server is compared with."""

from toolpost import Plugin
from toolpost.base.ids import JsonObject

TEXT: JsonObject = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}

plugin = Plugin("bench", version="1.0.0")


@plugin.tool(name="echo", input_schema=TEXT, output_schema=TEXT)
async def echo(arguments: JsonObject) -> JsonObject:
    """Return the text."""
    return {"text": arguments["text"]}
