"""An MCP server that answers everything with the credential that it was given; plain Python, so that it starts at once.

On stdio the credential is the variable MIRROR_TOKEN, over HTTP the token of `authorization`. `--version V` is the only revision
that it knows.
"""

import json
import os
import sys
from typing import Any

STATELESS = "2026-07-28"
ANY = {"type": "object"}
TOOLS = ("text", "structured", "embedded", "failed", "refused", "logged", "number")


def answer(version: str, method: str, params: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the `result` or the `error` of a request."""
    info = {"name": "mirror", "version": "1"}
    capabilities: dict[str, Any] = {"tools": {}, "logging": {}, "resources": {}, "prompts": {}}
    said = f"You are {key}."
    text = {"type": "text", "text": said}
    results: dict[str, Any] = {
        "tools/list": {"tools": [{"name": name, "description": f"For {key}", "inputSchema": ANY} for name in TOOLS]},
        "resources/list": {"resources": [{"uri": "mirror://one", "name": key}]},
        "resources/templates/list": {"resourceTemplates": []},
        "resources/read": {"contents": [{"uri": "mirror://one", "text": said}]},
        "prompts/list": {"prompts": [{"name": "one", "description": said}]},
        "prompts/get": {"messages": [{"role": "user", "content": text}]},
        "ping": {},
        "logging/setLevel": {},
    }
    if version == STATELESS:
        meta = {"io.modelcontextprotocol/serverInfo": info}
        results["server/discover"] = {"supportedVersions": [STATELESS], "capabilities": capabilities, "_meta": meta}
    else:
        results["initialize"] = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
    if method == "tools/call":
        tool = params["name"]
        if tool == "refused":
            return {"error": {"code": -31001, "message": said, "data": {"key": key}}}
        result: dict[str, Any] = {"content": [text], "isError": tool == "failed"}
        if tool == "structured":
            # Also as the text of another JSON document.
            result["structuredContent"] = {"headers": {"authorization": f"Bearer {key}"}, "raw": json.dumps({"k": key})}
        if tool == "embedded":
            result["content"] = [{"type": "resource", "resource": {"uri": "mirror://one", "text": said}}]
        if tool == "number":
            result["structuredContent"] = {"number": 1234567890123, "text": "1234567890123"}
        return {"result": result}
    if method in results:
        return {"result": results[method]}
    return {"error": {"code": -32601, "message": "no such method"}}


class MirrorHttp:
    """The server over HTTP, as an ASGI application; with `streams`, it answers with events."""

    def __init__(self, version: str = STATELESS, *, streams: bool = False) -> None:
        self.version = version
        self.streams = streams

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        body, more = b"", True
        while more:
            event = await receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        message = json.loads(body or b"{}")
        status, kind, raw = 202, b"application/json", b""
        if scope["method"] != "POST":
            status = 405
        elif "id" in message:
            key = headers.get("authorization", "").rpartition(" ")[2]
            made = answer(self.version, message["method"], message.get("params") or {}, key)
            raw = json.dumps({"jsonrpc": "2.0", "id": message["id"], **made}).encode()
            status = 200
            if self.streams:
                kind, raw = b"text/event-stream", b"data: %b\n\n" % raw
        start = [(b"content-type", kind), (b"content-length", str(len(raw)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": start})
        await send({"type": "http.response.body", "body": raw})


def serve(version: str) -> None:
    key = os.environ.get("MIRROR_TOKEN", "")
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request or "method" not in request:
            continue
        if (request.get("params") or {}).get("name") == "logged":
            note = {"level": "error", "data": f"You are {key}."}
            print(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": note}), flush=True)
        made = answer(version, request["method"], request.get("params") or {}, key)
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **made}), flush=True)


if __name__ == "__main__":
    serve(sys.argv[sys.argv.index("--version") + 1])
