"""Forwards MCP from stdio to the gateway over HTTP, for agents that know only stdio servers.

This is a program of its own, started with `python -S -E bridge.py` for each agent session. It imports nothing but the standard
library, so that Python need not load site packages. Requests are sent in threads: a slow call does not hold up those after it.
"""

import json
import os
import sys
import threading
import urllib.error
import urllib.request
from typing import Any

_out = threading.Lock()
_session_headers: dict[str, str] = {}
"""`Mcp-Session-Id` and `Mcp-Protocol-Version`, once `initialize` was answered."""


def main() -> None:
    """Forward each line until stdin ends; then wait up to 5 s for each response that is still to come."""
    threads: list[threading.Thread] = []
    for line in sys.stdin.buffer:
        if not line.strip():
            continue
        message = json.loads(line)
        if message.get("method") in ("initialize", "notifications/initialized"):
            _forward(message)  # In order: later requests need the session that these open.
            continue
        thread = threading.Thread(target=_forward, args=(message,), daemon=True)
        thread.start()
        threads = [running for running in threads if running.is_alive()] + [thread]
    for thread in threads:
        thread.join(5)


def _forward(message: dict[str, Any]) -> None:
    try:
        _send(message)
    except (OSError, ValueError) as error:
        if "id" in message and "method" in message:
            failure = {"code": -32603, "message": f"the gateway cannot be reached: {error}"}
            _write({"jsonrpc": "2.0", "id": message["id"], "error": failure})


def _send(message: dict[str, Any]) -> None:
    headers = {
        "Authorization": f"Bearer {os.environ['TOOLPOST_GATEWAY_TOKEN']}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **_session_headers,
        **_stateless_headers(message),
    }
    url = os.environ["TOOLPOST_GATEWAY_URL"]
    request = urllib.request.Request(url, json.dumps(message).encode(), headers)  # noqa: S310 (the gateway's own URL)
    try:
        response = urllib.request.urlopen(request)  # noqa: S310
    except urllib.error.HTTPError as refused:
        response = refused
    with response:
        if message.get("method") == "initialize" and (session := response.headers.get("mcp-session-id")):
            _session_headers["Mcp-Session-Id"] = session
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            for line in response:
                if line.startswith(b"data:") and line[5:].strip():
                    _write(json.loads(line[5:]))
        elif body := response.read().strip():
            _write(json.loads(body))


def _stateless_headers(message: dict[str, Any]) -> dict[str, str]:
    """Return the headers that the stateless era requires besides the message; empty for a message of the handshake era."""
    params = message.get("params") or {}
    version = (params.get("_meta") or {}).get("io.modelcontextprotocol/protocolVersion")
    if version is None:
        return {}
    headers = {"Mcp-Protocol-Version": version, "Mcp-Method": message.get("method", "")}
    name = params.get("name") or params.get("uri")
    return headers | ({"Mcp-Name": name} if name else {})


def _write(message: Any) -> None:
    if "result" in message and isinstance(message["result"], dict) and "protocolVersion" in message["result"]:
        _session_headers["Mcp-Protocol-Version"] = message["result"]["protocolVersion"]
    with _out:
        sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
