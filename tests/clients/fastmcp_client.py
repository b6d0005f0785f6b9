"""What a plugin offers, as FastMCP's client gets it. Prints one JSON object, as `typescript_client.mjs` does.

python fastmcp_client.py legacy|modern URL
python fastmcp_client.py legacy|modern COMMAND ARGUMENT...
"""

import asyncio
import json
import os
import sys
from typing import Any

import mcp_types as types
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport

era, target, *arguments = sys.argv[1:]
asked: list[str] = []
logs: list[str] = []


async def elicit(message: str, _kind: Any, params: Any, _context: Any) -> Any:
    asked.append(message)
    if getattr(params, "mode", "form") == "url":
        return ElicitResult(action="accept")
    fields = params.requested_schema["properties"]
    if "value" in fields:
        return ElicitResult(action="accept", content={"value": fields["value"]["type"] == "boolean" or "Ada"})
    return ElicitResult(action="accept", content={"name": "Ada"} | ({"guests": 3} if "guests" in fields else {}))


async def sample(_messages: Any, _params: Any, _context: Any) -> str:
    return "roses"


async def log(message: Any) -> None:
    logs.append(message.level)


async def data(client: Client, name: str) -> Any:
    return (await client.call_tool(f"offers__{name}", {})).structured_content["data"]


async def main() -> dict[str, Any]:
    where: Any = target
    if not target.startswith("http"):
        where = StdioTransport(target, arguments, env=dict(os.environ))
    options: dict[str, Any] = {"mode": "legacy" if era == "legacy" else "2026-07-28"}
    client = Client(
        where,
        roots=["file:///home/ada"],
        sampling_handler=sample,
        elicitation_handler=elicit,
        log_handler=log,
        **options,
    )
    found: dict[str, Any] = {}
    async with client:
        found["tools"] = len(await client.list_tools())
        found["mixed"] = [block.type for block in (await client.call_tool("offers__mixed", {})).content]
        found["image"] = [block.type for block in (await client.call_tool("offers__image", {})).content]
        broken = await client.call_tool("offers__broken", {}, raise_on_error=False)
        found["broken"] = [broken.is_error, [block.type for block in broken.content]]
        found["resources"] = [str(one.uri) for one in await client.list_resources() if "logo" in str(one.uri)]
        found["templates"] = [one.uri_template for one in await client.list_resource_templates()]
        found["note"] = (await client.read_resource("offers://notes/today"))[0].text
        found["prompts"] = [one.name for one in await client.list_prompts() if "summ" in one.name]
        prompt = await client.get_prompt("offers__summarize", {"title": "today", "words": 7})
        found["prompt"] = prompt.messages[1].content.text
        ref = types.PromptReference(name="offers__summarize")
        found["completed"] = (await client.complete(ref, {"name": "tone", "value": "w"})).values
        found["booked"] = await data(client, "book")
        found["atOnce"] = await data(client, "by_schema")
        found["folders"] = await data(client, "folders")
        found["private"] = (await client.read_resource("offers://private"))[0].text
        found["personal"] = (await client.get_prompt("offers__personal")).messages[0].content.text
        if era == "legacy":
            await client.set_logging_level("info")
            await client.call_tool("offers__logs", {})
            for _ in range(100):
                if len(logs) >= 2:
                    break
                await asyncio.sleep(0.05)
            found["logs"] = logs
    return found | {"asked": asked}


print(json.dumps(asyncio.run(main())))
