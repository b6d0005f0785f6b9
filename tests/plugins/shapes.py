"""A tool whose output schema is hard on clients, with references inside the envelope, and one that breaks its own."""

from typing import Any

from toolpost import Plugin

plugin = Plugin("shapes", version="0.93.0")

USES = {"models": {"opus": {"calls": 3}}}
_MODELS = {
    "type": "object",
    "properties": {"models": {"type": "object", "additionalProperties": {"$ref": "#/$defs/model"}}},
    "required": ["models"],
    "additionalProperties": False,
    "$defs": {"model": {"type": "object", "properties": {"calls": {"type": "integer"}}, "required": ["calls"]}},
}
_NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}


@plugin.tool(description="Count the calls of each model", input_schema=_NOTHING, output_schema=_MODELS)
async def count_uses(arguments: dict[str, Any]) -> dict[str, Any]:
    return USES


@plugin.tool(description="Returns another shape than it promised", input_schema=_NOTHING, output_schema=_MODELS)
async def wrong_shape(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"modles": [1, 2, 3]}
