"""An MCP server that tells with whose credential it was started (stdio) or is asked (HTTP); plain Python: it starts at once.

On stdio the credential is the variable WHOAMI_KEY, over HTTP the header `x-key`. `--version V` is the only revision it knows.
A credential that ends in `-vip` is listed one more tool, with the credential in its name. A long one is told backwards: as it is,
the gateway masks it.
"""

import json
import os
import sys
import threading
import time
from typing import Any

STATELESS = "2026-07-28"
ANY = {"type": "object"}


def tools_of(key: str) -> list[dict[str, Any]]:
    names = ["whoami", "slow", "leak", "shout", *([f"only_{key}"] if key.endswith("-vip") else [])]
    return [{"name": name, "inputSchema": ANY} for name in names]


def tell(key: str) -> str:
    return key if len(key) < 8 else key[::-1]


def text(what: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": what}]}


def answer(version: str, method: str, params: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the `result` or the `error` of a request."""
    info = {"name": "whoami", "version": "1"}
    capabilities = {"tools": {}, "logging": {}, "resources": {"subscribe": True}}
    if method == "server/discover" and version == STATELESS:
        meta = {"io.modelcontextprotocol/serverInfo": info}
        return {"result": {"supportedVersions": [STATELESS], "capabilities": capabilities, "_meta": meta}}
    if method == "initialize" and version != STATELESS:
        return {"result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}}
    if method == "tools/list":
        return {"result": {"tools": tools_of(key)}}
    if method == "tools/call":
        return {"result": text(tell(key))}
    if method == "resources/list":
        return {"result": {"resources": [{"uri": f"key://{key}", "name": "key"}]}}
    if method == "resources/read":
        return {"result": {"contents": [{"uri": params["uri"], "text": tell(key)}]}}
    if method in ("ping", "logging/setLevel", "resources/subscribe"):
        return {"result": {}}
    return {"error": {"code": -32601, "message": "no such method"}}


class WhoamiHttp:
    """The server over HTTP, as an ASGI application. A session belongs to the credential that opened it."""

    def __init__(self, version: str = STATELESS) -> None:
        self.version = version
        self.sessions: dict[str, str] = {}
        self.mixed: list[tuple[str, str]] = []
        """Credentials that came with the session, or on the connection, of another one."""
        self.connections: dict[Any, str] = {}
        """The first credential on each; by their transports of uvicorn, for a port is soon used for another connection."""
        self.is_down = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        body = b""
        more = True
        while more:
            event = await receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        key, session = headers.get("x-key", ""), headers.get("mcp-session-id")
        first = self.connections.setdefault(receive.__self__.transport, key)
        for other in (first, self.sessions.get(session, key) if session else key):
            if other != key:
                self.mixed.append((other, key))
        if self.is_down or scope["method"] != "POST":
            await self.reply(send, 503 if self.is_down else 405, b"")
            return
        message = json.loads(body)
        if "id" not in message:
            await self.reply(send, 202, b"")
            return
        more_headers = []
        if message["method"] == "initialize" and self.version != STATELESS:
            session = f"s{len(self.sessions)}"
            self.sessions[session] = key
            more_headers = [(b"mcp-session-id", session.encode())]
        if message.get("params", {}).get("name") == "leak":
            await self.reply(send, 500, f"no such key: {key}".encode())
            return
        made = answer(self.version, message["method"], message.get("params") or {}, key)
        raw = json.dumps({"jsonrpc": "2.0", "id": message["id"], **made}).encode()
        await self.reply(send, 200, raw, more_headers)

    async def reply(self, send: Any, status: int, body: bytes, more: Any = ()) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def serve(version: str) -> None:
    key = os.environ.get("WHOAMI_KEY", "")
    lock = threading.Lock()

    def write(message: dict[str, Any]) -> None:
        with lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def respond(request: dict[str, Any], tool: str) -> None:
        if tool == "slow":
            time.sleep(request["params"].get("arguments", {}).get("seconds", 0.4))
        write({"id": request["id"], **answer(version, request["method"], request.get("params") or {}, key)})
        if tool == "shout":
            time.sleep(0.1)
            write({"method": "notifications/message", "params": {"level": "error", "data": f"I am {tell(key)}"}})
            write({"method": "notifications/resources/updated", "params": {"uri": "key://all"}})

    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request or "method" not in request:
            continue
        tool = (request.get("params") or {}).get("name", "")
        if tool == "leak":
            print(f"cannot use the key {key}", file=sys.stderr, flush=True)
            sys.exit(3)
        if tool in ("slow", "shout"):
            threading.Thread(target=respond, args=(request, tool), daemon=True).start()
        else:
            respond(request, tool)


if __name__ == "__main__":
    serve(sys.argv[sys.argv.index("--version") + 1])
