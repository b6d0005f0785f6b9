"""An MCP server on stdio whose tools and results are those of a JSON file; plain Python, so that it starts at once.

The file holds `tools`, the definitions as they are listed, and `results`, the structured content that each tool returns.
"""

import json
import sys
from pathlib import Path
from typing import Any

VERSION = "2025-11-25"


def answer(method: str, params: dict[str, Any], content: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        info = {"name": "definitions", "version": "1"}
        return {"protocolVersion": VERSION, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": content["tools"]}
    if method == "tools/call":
        told = content["results"].get(params["name"], {})
        return {"content": [{"type": "text", "text": "done"}], "structuredContent": told}
    return None


def main() -> None:
    content = json.loads(Path(sys.argv[1]).read_text())
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answer(message.get("method", ""), message.get("params") or {}, content)
        outcome = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
