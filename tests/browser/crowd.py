"""A plugin with 6,000 tools, for the test of long lists."""

from typing import Any

from toolpost import Plugin

plugin = Plugin("crowd", version="1.0.0")

for number in range(6_000):

    @plugin.tool(
        name=f"count_{number:04}",
        description=f"Count the items of shelf {number} in the warehouse.",
        input_schema={
            "type": "object",
            "properties": {"item": {"type": "string", "description": f"an item of {number}"}},
        },
    )
    async def count(arguments: dict[str, Any]) -> str:
        return str(arguments)
