"""A server on stdio that logs about its calls, in time, late, or although they were given up."""

import argparse
import json
import os
import sys
import threading
import time
from typing import Any

STATELESS = "2026-07-28"
TOOLS = ("say", "sleep", "crash")

_lock = threading.Lock()


def send(message: dict[str, Any]) -> None:
    with _lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def log(text: str) -> None:
    send({"method": "notifications/message", "params": {"level": "error", "data": text}})


def call(request_id: Any, name: str, arguments: dict[str, Any]) -> None:
    """Log, sleep and answer; then, if asked for, log once more. A cancellation is not heeded."""
    text = str(arguments.get("text", ""))
    if name == "crash":
        os._exit(3)
    if name == "say":
        print(f"stderr {text}", file=sys.stderr, flush=True)
        if not arguments.get("late"):
            log(text)
    time.sleep(arguments.get("seconds", 0))
    send({"id": request_id, "result": {"content": [{"type": "text", "text": name}]}})
    if arguments.get("late"):
        time.sleep(arguments["late"])
        log(text)


def answer(version: str, message: dict[str, Any]) -> None:
    method, request_id, params = message.get("method"), message.get("id"), message.get("params") or {}
    capabilities: dict[str, Any] = {"tools": {}, "logging": {}}
    if request_id is None:
        return
    if method == "initialize" and version != STATELESS:
        agreed = {"protocolVersion": version, "capabilities": capabilities}
        send({"id": request_id, "result": agreed | {"serverInfo": {"name": "logging", "version": "1"}}})
    elif method == "server/discover" and version == STATELESS:
        send({"id": request_id, "result": {"supportedVersions": [STATELESS], "capabilities": capabilities}})
    elif method == "tools/list":
        send({"id": request_id, "result": {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in TOOLS]}})
    elif method == "tools/call":
        given = (request_id, params["name"], params.get("arguments") or {})
        threading.Thread(target=call, args=given, daemon=True).start()
    elif method in ("ping", "logging/setLevel"):
        send({"id": request_id, "result": {}})
    else:
        send({"id": request_id, "error": {"code": -32601, "message": "no such method"}})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", default="2025-11-25")
    options = parser.parse_args()
    for line in sys.stdin:
        answer(options.version, json.loads(line))


if __name__ == "__main__":
    main()
