"""A server on stdio that says what `_meta` it was sent: `meta_server.py VERSION`, with the revision that it speaks."""

import json
import sys
from typing import Any

VERSION = sys.argv[1]
STATELESS = "2026-07-28"
TOOLS: list[dict[str, Any]] = [{"name": name, "inputSchema": {"type": "object"}} for name in ("meta", "fail", "refuse")]
TOOLS.append(
    {"name": "strict", "inputSchema": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}}
)


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    capabilities: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}
    if method == "initialize":
        info = {"name": "meta", "version": "1"}
        return {"result": {"protocolVersion": VERSION, "capabilities": capabilities, "serverInfo": info}}
    if method == "server/discover" and VERSION == STATELESS:
        return {"result": {"supportedVersions": [STATELESS], "capabilities": capabilities}}
    text = {"content": [{"type": "text", "text": json.dumps(params.get("_meta") or {})}]}
    answers: dict[str, dict[str, Any]] = {
        "tools/list": {"tools": TOOLS},
        "ping": {},
        "resources/list": {"resources": [{"uri": "memo://one", "name": "one"}]},
        "resources/read": {"contents": [{"uri": "memo://one", "text": text["content"][0]["text"]}]},
        "prompts/list": {"prompts": [{"name": "greet"}]},
        "prompts/get": {"messages": [{"role": "user", "content": text["content"][0]}]},
    }
    if method in answers:
        return {"result": answers[method]}
    if method != "tools/call" or params["name"] == "refuse":
        return {"error": {"code": -32601 if method != "tools/call" else -32050, "message": "no, secret-7"}}
    return {"result": text | ({"isError": True} if params["name"] == "fail" else {})}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        reply = {"jsonrpc": "2.0", "id": message["id"], **answer(message["method"], message.get("params") or {})}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()
