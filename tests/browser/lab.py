"""Tools for the tests of the playground."""

from typing import Any

import anyio

from toolpost import Context, Plugin, Result

plugin = Plugin("lab", version="1.0.0")

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SOUND = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA="

ORDER = {
    "type": "object",
    "required": ["customer", "items", "deliver"],
    "properties": {
        "customer": {"type": "string", "minLength": 2, "description": "Who orders."},
        "number": {"type": "integer", "description": "An exact number."},
        "speed": {"enum": ["slow", "fast"], "description": "Fast costs twice as much."},
        "items": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1}},
            },
        },
        "deliver": {"oneOf": [{"$ref": "#/$defs/post"}, {"$ref": "#/$defs/pickup"}]},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "day": {"type": "string", "format": "date"},
    },
    "$defs": {
        "post": {
            "type": "object",
            "required": ["by", "street"],
            "properties": {"by": {"const": "post"}, "street": {"type": "string"}},
        },
        "pickup": {"type": "object", "required": ["by"], "properties": {"by": {"const": "pickup"}}},
    },
}


@plugin.tool(title="Order things", input_schema=ORDER, annotations={"destructiveHint": True})
async def order(arguments: dict[str, Any]) -> dict[str, Any]:
    """Order things, to be delivered or picked up."""
    return arguments


@plugin.tool
async def show() -> Result:
    """Show one of each kind of content. <img src=x onerror=document.title='broken'>"""
    return Result(
        data=[{"name": "a", "size": 12345678901234567890}, {"name": "<b>b</b>", "size": 2}],
        content=[
            {"type": "text", "text": "<script>document.title='broken'</script>"},
            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
            {"type": "audio", "data": SOUND, "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": "javascript:alert(1)", "name": "evil"},
            {"type": "resource_link", "uri": "https://example.com/a", "name": "good"},
            {"type": "resource", "resource": {"uri": "file:///notes.txt", "mimeType": "text/plain", "text": "notes"}},
            {
                "type": "resource",
                "resource": {"uri": "file:///a.bin", "mimeType": "application/x-thing", "blob": "AAAA"},
            },
        ],
    )


@plugin.tool
async def wait(ctx: Context, seconds: float = 60) -> str:
    """Wait, and say how far it is."""
    for step in range(1, 101):
        ctx.progress(step, 100, f"step {step}")
        await anyio.sleep(seconds / 100)
    return "done"
