"""MCP on stdio passed on to the gateway over HTTP, for agents that know no other way. A program of its own, on nothing else."""

import json
import os
import sys
import threading
import urllib.error
import urllib.request
from typing import Any

_out = threading.Lock()
_session: dict[str, str] = {}


def main() -> None:
    """Pass on each line, and write whatever comes back."""
    threads: list[threading.Thread] = []
    for line in sys.stdin.buffer:
        if not line.strip():
            continue
        message = json.loads(line)
        if message.get("method") in ("initialize", "notifications/initialized"):
            _pass_on(message)  # What comes after needs what these bring.
            continue
        thread = threading.Thread(target=_pass_on, args=(message,), daemon=True)
        thread.start()
        threads = [running for running in threads if running.is_alive()] + [thread]
    for thread in threads:
        thread.join(5)


def _pass_on(message: dict[str, Any]) -> None:
    try:
        _ask(message)
    except (OSError, ValueError) as error:
        if "id" in message and "method" in message:
            told = {"code": -32603, "message": f"the gateway cannot be reached: {error}"}
            _write({"jsonrpc": "2.0", "id": message["id"], "error": told})


def _ask(message: dict[str, Any]) -> None:
    headers = {
        "Authorization": f"Bearer {os.environ['TOOLPOST_DOOR_TOKEN']}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **_session,
        **_modern(message),
    }
    url = os.environ["TOOLPOST_DOOR_URL"]
    request = urllib.request.Request(url, json.dumps(message).encode(), headers)  # noqa: S310 (our own address)
    try:
        response = urllib.request.urlopen(request)  # noqa: S310
    except urllib.error.HTTPError as refused:
        response = refused
    with response:
        _note_session(message, response.headers)
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            for line in response:
                if line.startswith(b"data:") and line[5:].strip():
                    _write(json.loads(line[5:]))
        elif body := response.read().strip():
            _write(json.loads(body))


def _note_session(message: dict[str, Any], headers: Any) -> None:
    if message.get("method") == "initialize" and (session := headers.get("mcp-session-id")):
        _session["Mcp-Session-Id"] = session


def _modern(message: dict[str, Any]) -> dict[str, str]:
    """Say in headers what the stateless era has in the message as well."""
    params = message.get("params") or {}
    version = (params.get("_meta") or {}).get("io.modelcontextprotocol/protocolVersion")
    if version is None:
        return {}
    headers = {"Mcp-Protocol-Version": version, "Mcp-Method": message.get("method", "")}
    name = params.get("name") or params.get("uri")
    return headers | ({"Mcp-Name": name} if name else {})


def _write(message: Any) -> None:
    if "result" in message and isinstance(message["result"], dict) and "protocolVersion" in message["result"]:
        _session["Mcp-Protocol-Version"] = message["result"]["protocolVersion"]
    with _out:
        sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
