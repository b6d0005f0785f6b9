"""An MCP server on stdio whose tools are what a file says. It tells when the file changes, unless it is silent. Plain Python.

With a file of the same name that ends with `.hang`, it does not answer when its tools are listed.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

FILE = Path(sys.argv[1])
VERSION = sys.argv[2] if len(sys.argv) > 2 else "7.1"
IS_SILENT = "silent" in sys.argv[3:]


def tools() -> list[dict[str, Any]]:
    found = json.loads(FILE.read_text())
    assert isinstance(found, list)
    return found


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "listed", "version": VERSION},
        }
    if method == "tools/list":
        return {"tools": tools()}
    if method == "tools/call":
        text = json.dumps(params.get("arguments"), sort_keys=True)
        return {"content": [{"type": "text", "text": text}], "structuredContent": {"lat": 48.4, "name": "Ulm"}}
    return {} if method == "ping" else None


def say(message: dict[str, Any]) -> None:
    os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def watch() -> None:
    seen = FILE.stat().st_mtime_ns
    while True:
        time.sleep(0.05)
        if (now := FILE.stat().st_mtime_ns) != seen:
            seen = now
            say({"method": "notifications/tools/list_changed"})


def main() -> None:
    if not IS_SILENT:
        threading.Thread(target=watch, daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        if message["method"] == "tools/list" and FILE.with_suffix(".hang").exists():
            continue
        result = answer(message["method"], message.get("params") or {})
        outcome = {"result": result} if result is not None else {"error": {"code": -32601, "message": "no such method"}}
        say({"id": message["id"], **outcome})


main()
