"""What a client says in either era, over HTTP and on stdio."""

import http.client
import json
import time
from typing import Any, Literal

from bench.load import BenchError
from bench.processes import Measured

Era = Literal["modern", "handshake"]
ERAS: tuple[Era, ...] = ("modern", "handshake")

STATELESS = "2026-07-28"
HANDSHAKE = "2025-11-25"
SLOT = "@@@@@@@@"
"""Where the load generator puts a request's id."""

META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}
_START = {
    "protocolVersion": HANDSHAKE,
    "capabilities": {},
    "clientInfo": {"name": "toolpost-bench", "version": "1"},
}
READY_S = 60.0


def initialize() -> bytes:
    return _request(1, "initialize", _START)


def initialized() -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()


def list_tools(era: Era, cursor: str | None = None) -> bytes:
    return _request(2, "tools/list", _params({"cursor": cursor} if cursor else {}, era))


def call_template(tool: str, era: Era) -> bytes:
    """Return a `tools/call` for the load generator to fill in."""
    params = _params({"name": tool, "arguments": {"text": f"m{SLOT}"}}, era)
    return _request(SLOT, "tools/call", params).replace(f'"id":"{SLOT}"'.encode(), f'"id":{SLOT}'.encode())


def http_template(port: int, tool: str, era: Era, session_id: str | None) -> bytes:
    """Return a whole HTTP request for the load generator to fill in."""
    body = call_template(tool, era)
    headers = _headers(era, "tools/call", tool, session_id)
    headers |= {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


def open_session(port: int) -> str:
    """Shake hands over HTTP and return the session's id."""
    status, headers, body = post(port, initialize(), {})
    session_id = headers.get("mcp-session-id")
    if status != 200 or not session_id:
        raise BenchError(f"no session was opened: status {status}, {body[:500]!r}")
    post(port, initialized(), _headers("handshake", "notifications/initialized", None, session_id))
    return session_id


def list_over_http(port: int, era: Era, session_id: str | None, cursor: str | None = None) -> Any:
    """Return the result of one `tools/list`."""
    status, _, body = post(port, list_tools(era, cursor), _headers(era, "tools/list", None, session_id))
    if status != 200:
        raise BenchError(f"tools/list answered with status {status}: {body[:500]!r}")
    return result_of(body)


def result_of(body: bytes) -> Any:
    """Read a JSON-RPC result out of a JSON body or out of server-sent events."""
    text = next((line[6:] for line in body.splitlines() if line.startswith(b"data: {")), body)
    answer = json.loads(text)
    if "result" not in answer:
        raise BenchError(f"an error instead of a result: {text[:500]!r}")
    return answer["result"]


def post(port: int, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=READY_S)
    try:
        connection.request("POST", "/mcp", body, _headers_of_all() | headers)
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    finally:
        connection.close()


def wait_until_served(port: int, server: Measured, era: Era) -> None:
    """Wait for the port, then for a first good answer."""
    deadline = time.monotonic() + READY_S
    while True:
        if not server.is_alive():
            raise BenchError(f"the server has ended by itself:\n{server.said()}")
        try:
            session_id = open_session(port) if era == "handshake" else None
            list_over_http(port, era, session_id)
        except OSError:
            if time.monotonic() > deadline:
                raise BenchError(f"the server does not answer:\n{server.said()}") from None
            time.sleep(0.02)
        else:
            return


def _request(request_id: object, method: str, params: object) -> bytes:
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    return json.dumps(message, separators=(",", ":")).encode()


def _params(params: dict[str, object], era: Era) -> dict[str, object]:
    return params | {"_meta": META} if era == "modern" else params


def _headers_of_all() -> dict[str, str]:
    return {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


def _headers(era: Era, method: str, name: str | None, session_id: str | None) -> dict[str, str]:
    headers = _headers_of_all() | {"MCP-Protocol-Version": STATELESS if era == "modern" else HANDSHAKE}
    if era == "modern":
        headers["Mcp-Method"] = method
        if name:
            headers["Mcp-Name"] = name
    if session_id:
        headers["Mcp-Session-Id"] = session_id
    return headers
