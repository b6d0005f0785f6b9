"""Definitions of tools to test with: those written here, and in addition those collected elsewhere, where they are at hand."""

import json
from pathlib import Path
from typing import Any, NamedTuple

SHARED = Path(__file__).parents[2] / "shared/data"
TOUCAN = SHARED / "tools/toucan.jsonl"

_TEXT = {"type": "string"}


def _listed(server: str, name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"server": server, "name": name, "description": description, "inputSchema": schema}


def _takes(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


WRITTEN = [
    _listed(
        "Web Search",
        "search",
        "Search the web and return the best pages.",
        _takes("query", query=_TEXT, count={"type": "number"}),
    ),
    _listed(
        "Web Search",
        "fetch",
        "Fetch a page by its address, as Markdown.",
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            **_takes(
                "url", url={"type": "string", "format": "uri"}, timeout={"type": "integer", "minimum": 1, "default": 30}
            ),
            "additionalProperties": False,
        },
    ),
    _listed(
        "files",
        "read_file",
        "Read a file of the project.",
        _takes("path", path=_TEXT, encoding={"enum": ["utf-8", "latin-1"]}),
    ),
    _listed(
        "files",
        "write_file",
        "Write a file of the project; what was there is replaced.",
        _takes("path", "text", path=_TEXT, text=_TEXT),
    ),
    _listed("files", "list", "List the files of a folder.", _takes(path=_TEXT, depth={"type": ["integer", "null"]})),
    _listed(
        "issues",
        "create_issue",
        "Create an issue. Labels that do not exist yet are made.",
        _takes(
            "title",
            title=_TEXT,
            labels={"type": "array", "items": _TEXT},
            assignee={"anyOf": [_TEXT, {"type": "null"}]},
        ),
    ),
    _listed(
        "issues",
        "find_issues",
        "Find issues by their text, state and dates.",
        {
            **_takes(filter={"$ref": "#/$defs/Filter"}, since={"type": "string", "format": "date-time"}),
            "$defs": {"Filter": _takes("field", field=_TEXT, value={"oneOf": [_TEXT, {"type": "number"}]})},
        },
    ),
    _listed(
        "maps",
        "route",
        "Find the way between two places.",
        _takes(
            "stops",
            stops={
                "type": "array",
                "minItems": 2,
                "items": _takes("x", "y", x={"type": "number"}, y={"type": "number"}),
            },
        ),
    ),
    _listed("clock", "now", "Tell the time.", {"type": "object", "properties": {}}),
    _listed(
        "clock", "sleep", "Wait for a while.", _takes("seconds", seconds={"type": "number", "exclusiveMinimum": 0})
    ),
    # These are refused, each for one reason.
    _listed("broken", "no type", "Has a space in its name.", {"type": "object"}),
    _listed("broken", "wrong_type", "Takes a type that there is not.", _takes(a={"type": "text"})),
    _listed("broken", "nowhere", "Points to what is not there.", _takes(a={"$ref": "#/$defs/Nothing"})),
]


class Definitions(NamedTuple):
    """A set of definitions as servers list them, and how many of their schemas are wrong."""

    listed: list[dict[str, Any]]
    wrong: int


def load_definitions(name: str) -> Definitions:
    """Load one of `DEFINITION_SETS`."""
    if name == "written":
        return Definitions(WRITTEN, wrong=2)
    return Definitions([json.loads(line) for line in TOUCAN.read_text("utf-8").splitlines()], wrong=7)


DEFINITION_SETS = ["written", *(["collected"] if TOUCAN.exists() else [])]
