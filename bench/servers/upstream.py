"""The leanest upstream: an echo in both eras, so that it is not what is measured. `… http PORT [TOOLS]` or `… stdio [TOOLS]`."""

import asyncio
import os
import sys
from typing import Any

import msgspec
import uvloop

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS = "2026-07-28"

ECHO: dict[str, Any] = {
    "name": "echo",
    "description": "Return the text.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}
CAPABILITIES = {"tools": {"listChanged": False}}
INFO = {"name": "bench-upstream", "version": "1.0.0"}

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


def other_tool(number: int) -> dict[str, Any]:
    """Return a tool as real ones are: a handful of arguments of several kinds."""
    return {
        "name": f"lookup_{number:05d}",
        "description": f"Look record number {number} up by its key, filter it, and return a page of it as text.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
                "filter": {
                    "type": "object",
                    "properties": {"field": {"type": "string"}, "op": {"enum": ["eq", "lt", "gt"]}},
                },
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["query"],
        },
    }


class Echo:
    """What it answers, whatever it is asked over."""

    def __init__(self, tools: int) -> None:
        # The tool that is called stands last: whoever looks for it from the front finds it late.
        listed = [*(other_tool(number) for number in range(1, tools)), ECHO]
        self._listing = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": listed}

    def answer(self, raw: bytes) -> bytes | None:
        message = _decode(raw)
        if (request_id := message.get("id")) is None:
            return None
        if (result := self._result(message.get("method"), message.get("params") or {})) is None:
            error = {"code": -32601, "message": "Method not found"}
            return _encode({"jsonrpc": "2.0", "id": request_id, "error": error})
        return _encode({"jsonrpc": "2.0", "id": request_id, "result": result})

    def _result(self, method: object, params: dict[str, Any]) -> dict[str, Any] | None:
        if method == "tools/call":
            text = params["arguments"]["text"]
            return {"content": [{"type": "text", "text": text}], "isError": False, "resultType": "complete"}
        if method == "initialize":
            asked = params.get("protocolVersion")
            version = asked if asked in HANDSHAKE else HANDSHAKE[-1]
            return {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": INFO}
        if method == "server/discover":
            discovered = {"supportedVersions": [STATELESS], "capabilities": CAPABILITIES, "serverInfo": INFO}
            return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **discovered}
        if method == "tools/list":
            return self._listing
        return {} if method == "ping" else None


def serve_stdio(echo: Echo) -> None:
    """Read and write without a loop."""
    rest = b""
    while data := os.read(0, 262_144):
        *lines, rest = (rest + data).split(b"\n")
        answers = [answer for line in lines if line.strip() and (answer := echo.answer(line)) is not None]
        out = b"".join(answer + b"\n" for answer in answers)
        while out:
            out = out[os.write(1, out) :]


class HttpEcho(asyncio.Protocol):
    """A connection: requests with a length, one after the other."""

    def __init__(self, echo: Echo) -> None:
        self._echo = echo
        self._buffer = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data
        while (end := data.find(b"\r\n\r\n")) >= 0:
            head = data[:end].lower()
            _, found, after = head.partition(b"content-length:")
            total = end + 4 + (int(after.split(b"\r\n", 1)[0]) if found else 0)
            if len(data) < total:
                break
            self._transport.write(self._response(head, data[end + 4 : total]))
            data = data[total:]
        self._buffer = data

    def _response(self, head: bytes, body: bytes) -> bytes:
        if not head.startswith(b"post"):
            return b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n"
        answer = self._echo.answer(body)
        if answer is None:
            return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer)
        return head + answer


async def serve_http(echo: Echo, port: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: HttpEcho(echo), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    transport, *numbers = sys.argv[1:]
    if transport == "stdio":
        serve_stdio(Echo(int(numbers[0]) if numbers else 1))
    else:
        uvloop.run(serve_http(Echo(int(numbers[1]) if len(numbers) > 1 else 1), int(numbers[0])))
