"""An MCP server on stdio, one of several alike: `twin.py NAME FOLDER`. What FOLDER/NAME.mode says, it does when it is called.

`ok` answers; `crash` notes the call and ends; `hang` notes the call and never answers. Without the file it does not even start.
Calls are noted in FOLDER/calls.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

ANY: dict[str, Any] = {"type": "object"}
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}}


def tools_of(name: str) -> list[dict[str, Any]]:
    return [
        {"name": "read", "inputSchema": ANY, "annotations": {"readOnlyHint": True}},
        {"name": "write", "inputSchema": ANY},
        {"name": "ask", "inputSchema": ANY},
        {"name": f"only_{name}", "inputSchema": ANY},
        {"name": "differs", "inputSchema": ANY if name == "a" else NUMBER},
    ]


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    mode = folder / f"{name}.mode"
    if not mode.exists():
        sys.exit("there is no mode")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            result = answer(name, mode.read_text(), folder, message)
            error = {"code": -32601, "message": "unknown"}
            body = {"error": error} if result is None else {"result": result}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}), flush=True)


def answer(name: str, mode: str, folder: Path, message: dict[str, Any]) -> dict[str, Any] | None:
    if message["method"] == "initialize":
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": name, "version": "1"},
        }
    if message["method"] == "tools/list":
        return {"tools": tools_of(name)}
    if message["method"] != "tools/call":
        return None
    with (folder / "calls").open("a") as file:
        file.write(f"{name} {message['params']['name']}\n")
    if mode == "crash":
        os._exit(3)
    while mode == "hang":
        time.sleep(60)
    return {"content": [{"type": "text", "text": f"{name} did {message['params']['name']}"}]}


if __name__ == "__main__":
    main()
