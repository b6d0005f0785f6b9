"""A program that speaks as Claude Code does on stdio, and does what each prompt says."""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

OUT = threading.Lock()
RESUME = next((arg.partition("=")[2] for arg in sys.argv if arg.startswith("--resume=")), None)
SESSION = RESUME or f"claude-{os.getpid()}"
STATE = {"prompts": 0}
INTERRUPTED = threading.Event()
ANSWERS: dict[str, Any] = {}
STREAMED = threading.Condition()


def write(message: dict[str, Any]) -> None:
    with OUT:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def piece(text: str) -> None:
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    write({"type": "stream_event", "uuid": "e", "session_id": SESSION, "event": delta})


def whole(*blocks: dict[str, Any]) -> None:
    write(
        {"type": "assistant", "session_id": SESSION, "message": {"role": "assistant", "model": "m", "content": blocks}}
    )


def result(subtype: str = "success", *, is_error: bool = False, text: str = "") -> None:
    facts = {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1, "usage": {"output_tokens": 3}}
    write({"type": "result", "subtype": subtype, "is_error": is_error, "session_id": SESSION, "result": text, **facts})


def allowed(tool: str) -> bool:
    request = {"subtype": "can_use_tool", "tool_name": tool, "input": {"a": 1}}
    write({"type": "control_request", "request_id": "r1", "request": request})
    with STREAMED:
        STREAMED.wait_for(lambda: "r1" in ANSWERS, 10)
        return bool(ANSWERS.pop("r1")["response"]["behavior"] == "allow")


def gateway_call(name: str) -> str:
    from urllib.request import Request, urlopen

    path = sys.argv[sys.argv.index("--mcp-config") + 1]
    server = json.loads(Path(path).read_text())["mcpServers"]["toolpost"]
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    params = {"name": name, "arguments": {}, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {**server["headers"], "Content-Type": "application/json", "Accept": "application/json"}
    headers |= {"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": name}
    with urlopen(Request(server["url"], json.dumps(message).encode(), headers)) as response:
        return str(json.loads(response.read())["result"]["content"][0]["text"])


def prompted(text: str) -> None:
    STATE["prompts"] += 1
    word, _, rest = text.rstrip().rsplit("\n", 1)[-1].partition(" ")
    write({"type": "system", "subtype": "init", "session_id": SESSION})
    if word == "hang":
        INTERRUPTED.wait()
        result("error_during_execution", is_error=True)
        return
    if word == "crash":
        piece("before ")
        time.sleep(0.05)
        sys.stderr.write("out of luck\n")
        sys.stderr.flush()
        os._exit(3)
    if word == "fail":
        result("success", is_error=True, text="no credit")
        return
    said = {"say": rest, "count": str(STATE["prompts"]), "echo": text, "model": " ".join(sys.argv)}.get(word, "?")
    if word == "may":
        said = "yes" if allowed(rest) else "no"
    if word == "session":
        said = f"{SESSION} {'resumed' if RESUME else 'new'}"
    if word == "call":
        whole({"type": "tool_use", "id": "t1", "name": f"mcp__toolpost__{rest}", "input": {}})
        said = gateway_call(rest)
        block = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": said}]}
        write({"type": "user", "session_id": SESSION, "message": {"role": "user", "content": [block]}})
    for part in (said[: len(said) // 2], said[len(said) // 2 :]):
        piece(part)
    whole({"type": "text", "text": said})
    result(text=said)


def main() -> None:
    if RESUME == "claude-forgotten":
        sys.stderr.write(f"No conversation found with session ID: {RESUME}\n")
        sys.exit(1)
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "control_request":
            if message["request"]["subtype"] == "interrupt":
                INTERRUPTED.set()
            response = {"subtype": "success", "request_id": message["request_id"], "response": {}}
            write({"type": "control_response", "response": response})
        elif message["type"] == "control_response":
            with STREAMED:
                ANSWERS[message["response"]["request_id"]] = message["response"]
                STREAMED.notify_all()
        elif message["type"] == "user":
            INTERRUPTED.clear()
            content = message["message"]["content"]
            text = content if isinstance(content, str) else "".join(block["text"] for block in content)
            threading.Thread(target=prompted, args=(text,), daemon=True).start()


if __name__ == "__main__":
    main()
