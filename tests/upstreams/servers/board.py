"""A server with an MCP App, in plain JSON on stdio (`board.py LABEL [handshake]`); what it is asked comes back with its label.

Its tools name the app to a client alone that says that it shows apps.
"""

import json
import sys
from typing import Any

STATELESS = "2026-07-28"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
APPS = "io.modelcontextprotocol/ui"
URI = "ui://board/app.html"
PAGE = "<!-- a board -->\n<!DOCTYPE html>\n<html lang=en><head><title>Board</title></head><body>…</body></html>"
META = {"ui": {"csp": {"connectDomains": ["https://example.com"]}, "permissions": {"camera": {}}, "later": 1}}


def tool(name: str, **ui: Any) -> dict[str, Any]:
    definition: dict[str, Any] = {"name": name, "description": f"To {name}.", "inputSchema": {"type": "object"}}
    return definition | ({"_meta": {"ui": ui, "ui/resourceUri": URI, "dev.example/own": URI}} if ui else {})


TOOLS = [
    tool("show", resourceUri=URI, prefersBorder=True),
    tool("move", visibility=["app"]),
    tool("advise", visibility=["model"]),
    tool("board.reset", resourceUri=URI, visibility=["app", "model"]),
    tool("plain"),
]


def answer_to(method: str, params: dict[str, Any], label: str) -> dict[str, Any] | None:
    if method == "tools/list":
        return {"tools": [{key: one[key] for key in one if key != params.get("without")} for one in TOOLS]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": f"{label} {params['name']}"}]}
    if method == "resources/list":
        return {"resources": [{"uri": URI, "name": "board", "mimeType": "text/html;profile=mcp-app", "_meta": META}]}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": "ui://board/{id}.html", "name": "boards"}]}
    if method == "resources/read" and params["uri"].startswith("ui://board/"):
        contents = {"uri": params["uri"], "mimeType": "text/html; profile=mcp-app", "_meta": META}
        return {"contents": [contents | {"text": f"{PAGE}{label}"}]}
    if method == "completion/complete":
        return {"completion": {"values": [label, params["ref"]["uri"]]}}
    return {} if method in ("resources/subscribe", "ping") else None


def main(label: str, is_stateless: bool) -> None:
    capabilities = {"tools": {}, "resources": {"subscribe": True}, "completions": {}}
    info = {"name": "board", "version": "1"}
    greetings: dict[str, Any] = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info},
    }
    if is_stateless:
        greetings["server/discover"] = {
            "supportedVersions": [STATELESS],
            "capabilities": capabilities,
            "serverInfo": info,
        }
    capable: dict[str, Any] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        method, params = asked["method"], asked.get("params", {})
        capable = params.get("capabilities") or params.get("_meta", {}).get(CAPABILITIES) or capable
        if method == "tools/list" and APPS not in capable.get("extensions", {}):
            params = {"without": "_meta"}
        result = greetings.get(method) or answer_to(method, params, label)
        answer: dict[str, Any] = {"error": {"code": -32602, "message": f"{label} has no such thing"}}
        if result is not None:
            era = {"resultType": "complete", "ttlMs": 7, "cacheScope": "private"} if is_stateless else {}
            answer = {"result": {**result, **era}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}) + "\n")
        if method == "resources/subscribe":
            updated = {"method": "notifications/resources/updated", "params": {"uri": params["uri"]}}
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **updated}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], "handshake" not in sys.argv)
