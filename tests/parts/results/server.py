"""An MCP server on stdio whose results are as large as asked for; plain Python, so that it starts at once.

`--version V` is the only revision it knows. Its tools take `size`; `say` takes the result itself, as JSON text.
"""

import argparse
import json
import sys
from typing import Any

STATELESS = "2026-07-28"
ANY = {"type": "object"}
ROWS = {
    "type": "object",
    "properties": {
        "total": {"type": "integer"},
        "rows": {
            "type": "array",
            "items": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
        },
    },
    "required": ["total", "rows"],
    "additionalProperties": False,
}
EXACT = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": {"type": "integer"}, "minItems": 1000}},
    "required": ["rows"],
}
TOOLS = [
    {"name": "echo", "inputSchema": ANY},
    {"name": "say", "inputSchema": ANY},
    {"name": "rows", "inputSchema": ANY, "outputSchema": ROWS},
    {"name": "exact", "inputSchema": ANY, "outputSchema": EXACT},
    {"name": "lie", "inputSchema": ANY, "outputSchema": ROWS},
]


def call(name: str, arguments: dict[str, Any]) -> Any:
    """Return the result of a call."""
    size = int(arguments.get("size", 1))
    if name == "say":
        return json.loads(arguments["result"])
    if name == "lie":
        return {"content": [{"type": "text", "text": "row é\n" * size}], "structuredContent": {"total": "many"}}
    if name == "rows":
        value: Any = {"total": size, "rows": [{"id": number, "name": f"row é {number}"} for number in range(size)]}
    elif name == "exact":
        value = {"rows": list(range(size))}
    else:
        return {"content": [{"type": "text", "text": str(arguments.get("text", "line of text\n" * size))}]}
    return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value}


def answer(method: str, params: dict[str, Any], version: str) -> Any:
    """Return the result of a request; None if there is no such method."""
    info = {"name": "large", "version": "1"}
    if method == "server/discover" and version == STATELESS:
        meta = {"io.modelcontextprotocol/serverInfo": info}
        return {"supportedVersions": [STATELESS], "capabilities": {"tools": {}}, "_meta": meta}
    if method == "initialize" and version != STATELESS:
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    return call(params["name"], params.get("arguments") or {}) if method == "tools/call" else None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", default=STATELESS)
    version = parser.parse_args().version
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") is None or "method" not in message:
            continue
        result = answer(message["method"], message.get("params") or {}, version)
        body = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}) + "\n")
        sys.stdout.flush()


main()
