"""An MCP server over HTTP, mostly in the test's own process, that does whatever a server should not."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

STATELESS = "2026-07-28"
TOOLS = (
    *("echo", "sleep", "never", "endless", "endless_events", "cut", "cut_events", "flood", "refuse", "count", "lie"),
    *("change", "linger", "resume", "ask_back", "wait"),
)


class HttpServer:
    """What is wrong with it is set by its attributes, while it runs."""

    def __init__(self, *, version: str = STATELESS, has_sessions: bool = True, streams: bool = False) -> None:
        self.version = version
        self.has_sessions = has_sessions and version != STATELESS
        self.streams = streams
        self.status: int | None = None
        self.location = ""
        self.hangs_on_probe = False
        self.probe_pause = asyncio.Event()
        """Probes wait until this is set."""
        self.probe_pause.set()
        self.refusal_code = -31001
        self.refuses_revisions = 0
        """How many probes it answers with -32022, listing what it supports."""
        self.instructions = ""
        self.sessions: dict[str, int] = {}
        self.methods: list[str] = []
        self.cancelled: list[Any] = []
        self.reasons: list[Any] = []
        self.hung_up = 0
        self.answers: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
        self.listeners: set[asyncio.Queue[dict[str, Any] | None]] = set()
        self.released = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        exchange = _Exchange(self, {k.decode(): v.decode() for k, v in scope["headers"]}, receive, send)
        if self.status is not None:
            await exchange.reply(self.status, b"<html>no</html>", "text/html")
        elif scope["method"] == "POST":
            await exchange.post()
        elif scope["method"] == "GET":
            await exchange.get()
        else:
            self.sessions.pop(exchange.session, None)
            await exchange.reply(204)

    def forget_sessions(self) -> None:
        self.sessions.clear()

    def end_streams(self) -> None:
        """End the streams for messages outside requests, as a proxy may."""
        for queue in self.listeners:
            queue.put_nowait(None)


class _Exchange:
    def __init__(self, server: HttpServer, headers: dict[str, str], receive: Any, send: Any) -> None:
        self.server = server
        self.headers = headers
        self.receive = receive
        self.send = send
        self.session = headers.get("mcp-session-id", "")
        self.is_streaming = False

    async def reply(self, status: int, body: bytes = b"", kind: str = "application/json", **more: str) -> None:
        headers = [(b"content-type", kind.encode()), (b"location", self.server.location.encode())]
        headers += [(name.replace("_", "-").encode(), value.encode()) for name, value in more.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def answer(self, message: dict[str, Any], **headers: str) -> None:
        raw = json.dumps({"jsonrpc": "2.0", **message}).encode()
        if self.server.streams or self.is_streaming:
            await self.event(raw, **headers)
            await self.send({"type": "http.response.body", "body": b""})
        else:
            await self.reply(200, raw, **headers)

    async def event(self, raw: bytes, event_id: str = "", **headers: str) -> None:
        if not self.is_streaming:
            self.is_streaming = True
            named = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
            start = [(b"content-type", b"text/event-stream"), *named]
            await self.send({"type": "http.response.start", "status": 200, "headers": start})
        mark = b"id: %b\nretry: 50\n" % event_id.encode() if event_id else b""
        await self.send({"type": "http.response.body", "body": b"%bdata: %b\n\n" % (mark, raw), "more_body": True})

    async def text(self, request_id: Any, text: str, **fields: Any) -> None:
        await self.answer({"id": request_id, "result": {"content": [{"type": "text", "text": text}], **fields}})

    async def get(self) -> None:
        if self.server.has_sessions and self.session not in self.server.sessions:
            await self.reply(404)
        elif "last-event-id" in self.headers:
            result = {"content": [{"type": "text", "text": "resumed"}]}
            self.is_streaming = False
            await self.event(
                json.dumps({"jsonrpc": "2.0", "id": int(self.headers["last-event-id"]), "result": result}).encode()
            )
            await self.send({"type": "http.response.body", "body": b""})
        elif self.server.has_sessions:
            await self.listen()
        else:
            await self.reply(405)

    async def listen(self) -> None:
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.server.listeners.add(queue)
        gone = asyncio.create_task(self.hang_up())
        try:
            await self.event(b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}')
            while not gone.done():
                news = asyncio.create_task(queue.get())
                await asyncio.wait([news, gone], return_when=asyncio.FIRST_COMPLETED)
                if news.done():
                    if (message := news.result()) is None:
                        await self.send({"type": "http.response.body", "body": b""})
                        return
                    await self.event(json.dumps(message).encode())
                news.cancel()
        finally:
            gone.cancel()
            self.server.listeners.discard(queue)

    async def hang_up(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def post(self) -> None:
        body, more = b"", True
        while more:
            event = await self.receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        message = json.loads(body)
        method, request_id, params = message.get("method"), message.get("id"), message.get("params") or {}
        self.server.methods.append(method)
        self.server.headers.append(self.headers)
        is_stranger = self.server.has_sessions and self.session not in self.server.sessions
        if is_stranger and method not in ("initialize", "server/discover"):
            refusal = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}}
            await self.reply(404, json.dumps(refusal).encode())
            return
        if method is None:
            self.server.answers.append(message)
        if request_id is None or method is None:
            if method == "notifications/cancelled":
                self.server.cancelled.append(params["requestId"])
                self.server.reasons.append(params.get("reason"))
            await self.reply(202)
        else:
            await self.take(method, params, request_id)

    async def take(self, method: str, params: dict[str, Any], request_id: Any) -> None:
        server = self.server
        if method == "server/discover":
            await server.probe_pause.wait()
            if server.hangs_on_probe:
                await self.hang_up()
            elif server.refuses_revisions:
                server.refuses_revisions -= 1
                error = {"code": -32022, "message": "Unsupported", "data": {"supported": [server.version]}}
                await self.reply(400, json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode())
            elif server.version == STATELESS:
                result = {"supportedVersions": [STATELESS], "capabilities": {"tools": {"listChanged": True}}}
                result |= {"instructions": server.instructions}
                await self.answer({"id": request_id, "result": result})
            else:
                await self.reply(400, b"what?", "text/plain")
        elif method == "initialize":
            await self.initialize(request_id)
        elif method == "tools/list":
            await self.answer({"id": request_id, "result": {"tools": server.tools}})
        elif method == "subscriptions/listen":
            await self.listen()
        elif method == "tools/call":
            await getattr(self, params["name"])(request_id, params.get("arguments") or {}, params.get("_meta") or {})
        elif method == "ping":
            await self.answer({"id": request_id, "result": {}})
        else:
            await self.answer({"id": request_id, "error": {"code": -32601, "message": "no such method"}})

    async def initialize(self, request_id: Any) -> None:
        server = self.server
        if server.version == STATELESS:
            await self.answer({"id": request_id, "error": {"code": -32601, "message": "no such method"}})
            return
        info = {"name": "http", "version": "0"}
        agreed = {
            "protocolVersion": server.version,
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": info,
            "instructions": server.instructions,
        }
        headers = {}
        if server.has_sessions:
            session = f"session-{len(server.methods)}"
            server.sessions[session] = 0
            headers = {"mcp_session_id": session}
        await self.answer({"id": request_id, "result": agreed}, **headers)

    # The tools

    async def echo(self, request_id: Any, arguments: Any, _meta: Any) -> None:
        await self.text(request_id, arguments.get("text", ""))

    async def count(self, request_id: Any, _arguments: Any, _meta: Any) -> None:
        self.server.sessions[self.session] += 1
        await self.text(request_id, str(self.server.sessions[self.session]))

    async def sleep(self, request_id: Any, arguments: Any, _meta: Any) -> None:
        await asyncio.sleep(arguments["seconds"])
        await self.text(request_id, "slept")

    async def wait(self, request_id: Any, _arguments: Any, _meta: Any) -> None:
        await self.server.released.wait()
        await self.text(request_id, "released")

    async def never(self, _request_id: Any, _arguments: Any, _meta: Any) -> None:
        await self.hang_up()
        self.server.hung_up += 1

    async def endless(self, _request_id: Any, _arguments: Any, _meta: Any) -> None:
        await self.send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}
        )
        gone = asyncio.create_task(self.hang_up())
        while not gone.done():
            await self.send({"type": "http.response.body", "body": b" " * 1_000_000, "more_body": True})
            await asyncio.sleep(0)

    async def endless_events(self, _request_id: Any, _arguments: Any, _meta: Any) -> None:
        gone = asyncio.create_task(self.hang_up())
        while not gone.done():
            await self.event(b'{"jsonrpc":"2.0","id":424242,"result":{}}')
            await asyncio.sleep(0.01)

    async def cut(self, _request_id: Any, _arguments: Any, _meta: Any) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"100")]
        await self.send({"type": "http.response.start", "status": 200, "headers": headers})
        await self.send({"type": "http.response.body", "body": b'{"jsonrpc"', "more_body": True})
        raise ConnectionAbortedError("cut")

    async def cut_events(self, _request_id: Any, _arguments: Any, _meta: Any) -> None:
        await self.event(b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}')
        await self.send({"type": "http.response.body", "body": b""})

    async def flood(self, request_id: Any, arguments: Any, meta: Any) -> None:
        for step in range(arguments["count"]):
            params = {"progressToken": meta.get("progressToken"), "progress": step + 1, "total": arguments["count"]}
            await self.event(
                json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).encode()
            )
        await self.text(request_id, "flooded")

    async def refuse(self, request_id: Any, _arguments: Any, _meta: Any) -> None:
        await self.answer(
            {"id": request_id, "error": {"code": self.server.refusal_code, "message": "not today", "data": {"why": 1}}}
        )

    async def lie(self, request_id: Any, _arguments: Any, _meta: Any) -> None:
        await self.answer({"id": request_id + 1, "result": {"content": []}})

    async def change(self, request_id: Any, _arguments: Any, _meta: Any) -> None:
        self.server.tools.append({"name": "fresh", "inputSchema": {"type": "object"}})
        for queue in self.server.listeners:
            queue.put_nowait({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}})
        await self.text(request_id, "changed")

    async def linger(self, request_id: Any, _arguments: Any, _meta: Any) -> None:
        result = {"content": [{"type": "text", "text": "lingered"}]}
        await self.event(json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}).encode())
        await self.hang_up()

    async def resume(self, request_id: Any, _arguments: Any, _meta: Any) -> None:
        note = b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}'
        await self.event(note, event_id=str(request_id))
        await self.send({"type": "http.response.body", "body": b""})

    async def ask_back(self, request_id: Any, _arguments: Any, _meta: Any) -> None:
        await self.event(b'{"jsonrpc":"2.0","id":"s1","method":"roots/list"}')
        while not self.server.answers:
            await asyncio.sleep(0.01)
        await self.text(request_id, "asked")


@asynccontextmanager
async def serving(app: Any, *, port: int = 0) -> AsyncIterator[str]:
    """Serve an ASGI application on a port of its own; yields the URL."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    config = uvicorn.Config(
        app,
        interface="asgi3",
        log_level="critical",
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:
            await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        server.should_exit = server.force_exit = True
        await asyncio.wait([task])
        listener.close()


async def _serve_until_killed(port: int) -> None:
    async with serving(HttpServer(), port=port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve_until_killed(int(sys.argv[1])))
