"""An MCP server on stdio whose answers are small to send and costly to read; plain Python, so that it starts at once."""

import json
import sys
from typing import Any

SIZE = 1_000_000
MANY = "[" + "[]," * SIZE + "1]"
ANY = {"type": "object"}
ANSWERS = {
    "structured": '"result":{"content":[],"structuredContent":{"x":' + MANY + "}}",
    "refusal": '"error":{"code":7,"message":"no","data":' + MANY + "}",
    "stray_fields": '"result":{"content":[],' + ",".join(f'"{number}":0' for number in range(SIZE // 4)) + "}",
    "stray_meta": '"result":{"content":[],"_meta":{' + ",".join(f'"{number}":0' for number in range(SIZE // 4)) + "}}",
    "questions": '"result":{"resultType":"input_required","inputRequests":{'
    + ",".join(f'"{number}":{{"method":"roots/list"}}' for number in range(SIZE // 10))
    + "}}",
}
SAID_BEFORE = {
    "log": '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":' + MANY + "}}",
    "question": '{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{"messages":' + MANY + "}}",
    "garbage": "x\n" * (SIZE // 2),
}
TOOLS = [
    {"name": name, "inputSchema": ANY} | ({"outputSchema": ANY} if name == "structured" else {})
    for name in (*ANSWERS, *SAID_BEFORE, "fine")
]


def send(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def answer(request: dict[str, Any]) -> None:
    number, params = request["id"], request.get("params", {})
    result: dict[str, Any]
    if request["method"] == "initialize":
        about = {"name": "costly", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
    elif request["method"] == "tools/list":
        result = {"tools": TOOLS}
    elif request["method"] == "tools/call" and params["name"] in ANSWERS:
        send(f'{{"jsonrpc":"2.0","id":{number},{ANSWERS[params["name"]]}}}')
        return
    elif request["method"] == "tools/call":
        if params["name"] in SAID_BEFORE:
            send(SAID_BEFORE[params["name"]])
        result = {"content": [{"type": "text", "text": "fine"}]}
    else:
        send(json.dumps({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "no such method"}}))
        return
    send(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}))


if __name__ == "__main__":
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            answer(message)
