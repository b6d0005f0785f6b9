"""A small MCP server on stdio whose tools are what the file of its argument says; plain Python, so that it starts at once."""

import json
import sys
from pathlib import Path

print(*sys.argv[2:], file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    results = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "changing", "version": "0"},
        },
        "tools/list": {"tools": json.loads(Path(sys.argv[1]).read_text())},
        "tools/call": {"content": [{"type": "text", "text": "done"}]},
        "ping": {},
    }
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}), flush=True)
