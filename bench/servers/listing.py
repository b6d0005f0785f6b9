"""A server on stdio that lists the definitions of a file, a line of JSON each, a thousand on a page. Plain Python."""

import json
import os
import sys
from pathlib import Path
from typing import Any

PAGE = 1_000


def read_tools(path: Path) -> list[dict[str, Any]]:
    """Read the definitions, the first of each name."""
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        definition = json.loads(line)
        del definition["server"]
        found.setdefault(definition["name"], definition)
    return list(found.values())


def answer(message: dict[str, Any], tools: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the result of a request, None for a method that this server does not have."""
    if message["method"] == "initialize":
        info = {"name": "listing", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if message["method"] == "tools/list":
        start = int((message.get("params") or {}).get("cursor") or 0)
        following = {"nextCursor": str(start + PAGE)} if start + PAGE < len(tools) else {}
        return {"tools": tools[start : start + PAGE], **following}
    return {} if message["method"] == "ping" else None


def main() -> None:
    """Answer until stdin ends."""
    tools = read_tools(Path(sys.argv[1]))
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message, tools)
        outcome = {"error": {"code": -32601, "message": "unknown"}} if result is None else {"result": result}
        raw = json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}).encode() + b"\n"
        while raw:
            raw = raw[os.write(1, raw) :]


if __name__ == "__main__":
    main()
