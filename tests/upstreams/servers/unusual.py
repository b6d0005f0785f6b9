"""A server with fields that no revision knows, in an order of its own: plain JSON on stdio (`unusual.py [handshake]`)."""

import json
import sys
from typing import Any

STATELESS = "2026-07-28"
ODD = {"zeta": None, "x-odd": {"b": 1.0, "a": [None, {"q": 10**17}]}}
RESOURCE = {"size": 3, "uri": "odd://one", **ODD, "name": "one", "annotations": {"priority": 0.5, "mood": "blue"}}
RESULTS: dict[str, Any] = {
    "tools/list": {"tools": []},
    "resources/list": {"resources": [RESOURCE]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "odd://{n}", **ODD, "name": "n"}]},
    "resources/read": {"later": 1, "contents": [{"text": "x", **ODD, "uri": "odd://one"}], "_meta": {"b": 1, "a": 2}},
    "prompts/list": {"prompts": [{"name": "greet", **ODD, "arguments": [{"name": "who", "hue": "red"}]}]},
    "prompts/get": {"messages": [{"role": "user", "content": {"text": "hi", "type": "text", **ODD}}], **ODD},
    "completion/complete": {"completion": {"hasMore": False, "values": ["a"], **ODD}},
}


def main(is_stateless: bool) -> None:
    capabilities: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}, "completions": {}}
    info = {"name": "unusual", "version": "1"}
    greetings = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info},
        "server/discover": {"supportedVersions": [STATELESS], "capabilities": capabilities, "serverInfo": info},
    }
    if not is_stateless:
        del greetings["server/discover"]
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        answer: dict[str, Any] = {"error": {"code": -32601, "message": "Method not found"}}
        if (result := (greetings | RESULTS).get(asked["method"])) is not None:
            era = {"resultType": "complete", "ttlMs": 7, "cacheScope": "private"} if is_stateless else {}
            answer = {"result": {**result, **era}}
        if asked["params"].get("uri") == "odd://nonsense":
            answer = {"result": {"contents": "none"}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main("handshake" not in sys.argv)
