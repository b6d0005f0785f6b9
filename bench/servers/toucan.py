"""Real definitions as plugins: one plugin per server of `toucan.jsonl`, found as `bench.servers.toucan:its-slug`."""

import json
import re
from collections import defaultdict
from functools import cache
from typing import Any

from bench.processes import ROOT
from toolpost import Plugin, Tool
from toolpost.base.ids import JsonObject
from toolpost.contracts.contract import ToolDefinition

DEFINITIONS = ROOT.parent / "shared" / "data" / "tools" / "toucan.jsonl"


@cache
def tools_by_plugin() -> dict[str, list[Tool]]:
    """Read all definitions; servers whose names have the same slug share a plugin."""
    found: dict[str, list[Tool]] = defaultdict(list)
    with DEFINITIONS.open(encoding="utf-8") as lines:
        for line in lines:
            definition = json.loads(line)
            found[_slug(definition["server"])].append(_tool(definition))
    return dict(found)


def __getattr__(name: str) -> Plugin:
    tools = tools_by_plugin().get(name)
    if tools is None:
        raise AttributeError(name)
    return Plugin(name, version="1.0.0", tools=tools)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unnamed"


def _tool(definition: dict[str, Any]) -> Tool:
    terms = ToolDefinition(
        name=definition["name"],
        description=definition.get("description") or "Not described.",
        input_schema=definition["inputSchema"],
        annotations=definition.get("annotations") or {},
    )
    return Tool(terms=terms, run=_run, is_async=True)


async def _run(arguments: JsonObject, _context: object) -> JsonObject:
    return arguments
