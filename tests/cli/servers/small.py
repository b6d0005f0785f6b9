"""A small MCP server on stdio, of the handshake era; plain Python, so that it starts at once.

Its first argument is what it is like: `fine`, `strange` (tools that some client stumbles over), `broken` (a schema that is
none), `many` (130 tools), `noisy` (prints to stdout), `dies` (says its secret, and ends), `liar` (breaks its own output
schema), `none` (no tools), `pictures` (an image between two texts, and other content).
"""

import json
import os
import sys
from typing import Any

ECHO = {
    "name": "echo",
    "description": "Say it back.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    "outputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}


def nested(levels: int) -> dict[str, Any]:
    inner = nested(levels - 1) if levels > 1 else {"type": "string"}
    return {"type": "object", "properties": {"in": inner}}


def tool(name: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "description": "Does it.", "inputSchema": {"type": "object"} | schema}


TREE = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}

STRANGE = [
    {"name": "silent", "inputSchema": {"type": "object"}},
    {"name": "mute", "inputSchema": {"type": "object"}},
    tool("talks") | {"description": "x" * 1_100},
    tool("dotted.name"),
    tool("n" * 52),
    tool("either", anyOf=[{"required": ["a"]}, {"required": ["b"]}]),
    tool("refers", **{"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": {"type": "string"}}}}}),
    tool("old", **{"$schema": "http://json-schema.org/draft-06/schema#"}),
    tool("formats", properties={"a": {"type": "string", "format": "phone"}}),
    tool("deep", **nested(6)),
    tool("tree", properties={"root": {"$ref": "#/$defs/tree"}}, **{"$defs": {"tree": TREE}}),
    tool("lists", properties={"a": {"type": "array"}, "b": {"type": "array", "items": {"type": "string"}}}),
    tool("types", properties={"a": {"type": ["string", "null"]}, "b": {"type": ["string"]}}),
    tool("numbers", properties={"a": {"enum": [1, 2]}, "b": {"enum": ["x"]}}),
    tool("spaced", properties={"a b": {"type": "string"}}),
]

TOOLS: dict[str, list[dict[str, Any]]] = {
    "fine": [ECHO],
    "strange": STRANGE,
    "broken": [ECHO, tool("bad", properties={"a": {"type": "nonsense"}})],
    "many": [tool(f"tool_{number}") for number in range(130)],
    "noisy": [ECHO],
    "liar": [ECHO],
    "none": [],
    "pictures": [tool("snap"), tool("spoil")],
}

SNAP = [
    {"type": "text", "text": "before"},
    {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    {"type": "text", "text": "after"},
    {"type": "resource", "resource": {"uri": "file:///notes.md", "mimeType": "text/markdown", "text": "# Notes"}},
    {"type": "resource_link", "uri": "https://example.org/\x1b[2J", "name": "more", "mimeType": "text/html"},
]
"""What a picture tool returns, with a link that tries to steer the terminal."""


def answer(method: str, params: dict[str, Any], kind: str) -> dict[str, Any] | None:
    if method == "initialize":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "small", "version": "0"},
        }
    if method == "tools/list":
        return {"tools": TOOLS[kind]}
    if method == "tools/call" and kind == "pictures":
        return {"content": SNAP, "isError": params["name"] == "spoil"}
    if method == "tools/call":
        text = str(params.get("arguments", {}).get("text"))
        told = {"text": 7 if kind == "liar" else text}
        return {"content": [{"type": "text", "text": text}], "structuredContent": told}
    return {} if method == "ping" else None


def main() -> None:
    kind = sys.argv[1]
    print(f"small server here, token {os.environ.get('SMALL_TOKEN')}", file=sys.stderr, flush=True)
    if kind == "dies":
        sys.exit(1)
    if kind == "noisy":
        print("Welcome!", flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params") or {}, kind)
        outcome = {"result": result} if result is not None else {"error": {"code": -32601, "message": "no such method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)


main()
