"""An MCP server on stdio that does whatever a server should not; plain Python, so that it starts at once.

Options: `--version V` the only revision it knows (`2026-07-28` is the stateless era), `--start HOW` what is wrong with its
start, `--log FILE` where it notes what it was told.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

STATELESS = "2026-07-28"
ANY = {"type": "object"}
LIAR = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

TOOLS: dict[str, dict[str, Any]] = {
    name: {"name": name, "inputSchema": ANY}
    for name in (
        *("echo", "sleep", "garbage", "half_line", "unknown_id", "twice", "never", "big", "flood", "close_stdin"),
        *("close_stdout", "family", "crash", "count", "deaf", "change", "change_quietly", "refuse", "no_result"),
        *("text_id", "null_error", "ask_back", "pid", "exit_politely", "input_required", "go_deaf", "chatter"),
    )
}
TOOLS["lie"] = {"name": "lie", "inputSchema": ANY, "outputSchema": LIAR}


class Server:
    def __init__(self, options: argparse.Namespace) -> None:
        self.version = options.version
        self.start = options.start
        self.log_file = options.log
        self.tools = dict(TOOLS)
        self.cancelled: dict[Any, threading.Event] = {}
        self.subscription: Any = None
        self.sample_array = 0
        self.lock = threading.Lock()

    def log(self, text: str) -> None:
        if self.log_file:
            with Path(self.log_file).open("a") as file:
                file.write(text + "\n")

    def write(self, text: str) -> None:
        with self.lock:
            sys.stdout.write(text)
            sys.stdout.flush()

    def send(self, message: dict[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")

    def answer(self, request_id: Any, result: dict[str, Any]) -> None:
        self.send({"id": request_id, "result": result})

    def text(self, request_id: Any, text: str, **fields: Any) -> None:
        self.answer(request_id, {"content": [{"type": "text", "text": text}], **fields})

    def refuse(self, request_id: Any, code: int, message: str, data: Any = None) -> None:
        self.send({"id": request_id, "error": {"code": code, "message": message, "data": data}})

    def run(self) -> None:
        self.log(f"start {os.getpid()}")
        print("hostile server here", file=sys.stderr, flush=True)
        if self.start == "exit":
            sys.exit("I will not")
        if self.start == "hang":
            time.sleep(60)
        if self.start == "slow":
            time.sleep(1)
        if self.start == "garbage":
            self.write("Welcome!\n\x00\xff\n[1,2\n{}\n" + '"text"\n')
        for line in sys.stdin:
            message = json.loads(line)
            if "method" in message:
                self.take(message["method"], message.get("params") or {}, message.get("id"))
            else:
                self.log(f"answered {json.dumps(message)}")
        self.log("eof")

    def take(self, method: str, params: dict[str, Any], request_id: Any) -> None:
        self.log(method)
        if method == "notifications/cancelled":
            self.log(f"cancelled {params['requestId']}")
            self.log(f"reason {params.get('reason')}")
            self.cancelled.setdefault(params["requestId"], threading.Event()).set()
        elif request_id is None:
            return
        elif method == "server/discover":
            self.discover(request_id)
        elif method == "initialize":
            self.initialize(params, request_id)
        elif method == "tools/list":
            self.list(params, request_id)
        elif method == "tools/call":
            self.call(params, request_id)
        elif method == "subscriptions/listen":
            self.subscription = request_id
            self.send({"method": "notifications/subscriptions/acknowledged", "params": {}})
        elif method == "ping":
            self.answer(request_id, {})
        else:
            self.refuse(request_id, -32601, "no such method")

    def discover(self, request_id: Any) -> None:
        if self.start == "exit_on_probe":
            sys.exit("what is a discover?")
        if self.start == "hang_on_probe":
            return
        if self.start == "nonsense_on_probe":
            self.answer(request_id, {"supportedVersions": 7, "capabilities": [], "_meta": "x"})
        elif self.version == STATELESS:
            capabilities = {} if self.start == "no_tools" else {"tools": {"listChanged": True}}
            info = {"io.modelcontextprotocol/serverInfo": {"name": "hostile", "version": "1"}}
            self.answer(request_id, {"supportedVersions": [STATELESS], "capabilities": capabilities, "_meta": info})
        else:
            self.refuse(request_id, -32601, "no such method")

    def initialize(self, params: dict[str, Any], request_id: Any) -> None:
        if self.version == STATELESS:
            self.refuse(request_id, -32601, "no such method")
        elif self.start == "strict" and params["protocolVersion"] != self.version:
            self.refuse(request_id, -32602, "unsupported", {"supported": [self.version]})
        else:
            capabilities = {} if self.start == "no_tools" else {"tools": {"listChanged": True}}
            info = {"name": "hostile", "version": "0"}
            agreed = {"protocolVersion": self.version, "capabilities": capabilities, "serverInfo": info}
            self.answer(request_id, agreed)

    def list(self, params: dict[str, Any], request_id: Any) -> None:
        tools = list(self.tools.values())
        if self.start == "bad_schemas":
            tools = [*BAD_TOOLS, *tools]
        page: dict[str, Any] = {"tools": tools}
        if self.start == "same_cursor":
            page["nextCursor"] = "again"
        if self.start == "endless":
            page = {"tools": [], "nextCursor": str(int(params.get("cursor") or 0) + 1)}
        if self.start == "refuse_list":
            self.refuse(request_id, -32000, "no list today")
        else:
            self.answer(request_id, page)

    def call(self, params: dict[str, Any], request_id: Any) -> None:
        arguments = params.get("arguments") or {}
        token = (params.get("_meta") or {}).get("progressToken")
        name = params["name"]
        if name not in self.tools:
            self.refuse(request_id, -32602, f"Unknown tool: {name}")
        elif name in ("deaf", "crash", "close_stdin", "close_stdout", "exit_politely", "go_deaf"):
            getattr(self, name)(request_id, arguments)
        elif name == "flood":
            threading.Thread(target=self.flood, args=(request_id, arguments, token), daemon=True).start()
        else:
            tool = self.decline if name == "refuse" else getattr(self, name)
            threading.Thread(target=tool, args=(request_id, arguments), daemon=True).start()

    # The tools

    def echo(self, request_id: Any, arguments: dict[str, Any]) -> None:
        self.text(request_id, arguments.get("text", ""), **({"isError": True} if arguments.get("fails") else {}))

    def pid(self, request_id: Any, arguments: dict[str, Any]) -> None:
        self.text(request_id, str(os.getpid()))

    def sleep(self, request_id: Any, arguments: dict[str, Any]) -> None:
        stopped = self.cancelled.setdefault(request_id, threading.Event())
        self.log("sleeping")
        if "until" in arguments:  # a file that a test makes
            while not Path(arguments["until"]).exists() and not stopped.wait(0.02):
                pass
        else:
            stopped.wait(arguments["seconds"])
        if not stopped.is_set():
            self.text(request_id, "slept")

    def garbage(self, request_id: Any, arguments: dict[str, Any]) -> None:
        self.write('Traceback:\n\x00\x01\n{"jsonrpc": "2.0"}\n[]\nnull\n{"id": {}}\n\n' + "{" * 5000 + "\n")
        self.text(request_id, "after garbage")

    def half_line(self, request_id: Any, arguments: dict[str, Any]) -> None:
        whole = json.dumps({"jsonrpc": "2.0", "id": request_id, "result": {"content": [{"type": "text", "text": "é"}]}})
        for part in (whole[:20], whole[20:-3], whole[-3:] + "\n"):
            self.write(part)
            time.sleep(0.05)

    def unknown_id(self, request_id: Any, arguments: dict[str, Any]) -> None:
        for other in (999_999, "nobody", None, -1):
            self.text(other, "not yours")
        self.text(request_id, "yours")

    def twice(self, request_id: Any, arguments: dict[str, Any]) -> None:
        self.text(request_id, "first")
        self.text(request_id, "second")

    def never(self, request_id: Any, arguments: dict[str, Any]) -> None:
        self.log("ignored")

    def big(self, request_id: Any, arguments: dict[str, Any]) -> None:
        self.text(request_id, "x" * arguments["bytes"])

    def flood(self, request_id: Any, arguments: dict[str, Any], token: Any) -> None:
        for step in range(arguments["count"]):
            note = {
                "progressToken": token,
                "progress": step + 1,
                "total": arguments["count"],
                "message": f"step {step}",
            }
            self.send({"method": "notifications/progress", "params": note})
        self.text(request_id, "flooded")

    def close_stdin(self, request_id: Any, arguments: dict[str, Any]) -> None:
        os.close(0)
        self.log("deaf")
        time.sleep(60)

    def close_stdout(self, request_id: Any, arguments: dict[str, Any]) -> None:
        os.close(1)
        time.sleep(60)

    def family(self, request_id: Any, arguments: dict[str, Any]) -> None:
        """Start a grandchild in a session of its own that ignores SIGTERM, and go on for ever."""
        script = (
            "import signal, time, os; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True)"
        )
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", f"{script}; time.sleep(300)"], start_new_session=True, stdout=subprocess.PIPE
        )
        assert child.stdout
        self.log(f"child {child.stdout.readline().decode().strip()}")
        if arguments.get("stays"):
            return
        self.text(request_id, "a daemon was left")

    def crash(self, request_id: Any, arguments: dict[str, Any]) -> None:
        print("boom: the disk is on fire", file=sys.stderr, flush=True)
        os._exit(3)

    def exit_politely(self, request_id: Any, arguments: dict[str, Any]) -> None:
        self.text(request_id, "bye")
        sys.exit(0)

    def count(self, request_id: Any, arguments: dict[str, Any]) -> None:
        with self.lock:
            self.sample_array += 1
        self.text(request_id, str(self.sample_array))

    def deaf(self, request_id: Any, arguments: dict[str, Any]) -> None:
        """Hold up everything, cancellations too."""
        self.log("deaf")
        time.sleep(arguments["seconds"])
        self.text(request_id, "woke up")

    def chatter(self, request_id: Any, arguments: dict[str, Any]) -> None:
        """Tell things that nobody asked for, and answer among them."""
        for number in range(arguments["count"]):
            params = {"level": "info", "data": "x" * 200, "progressToken": number, "progress": number}
            method = ("message", "progress", "resources/updated", "nonsense")[number % 4]
            self.send({"method": f"notifications/{method}", "params": params})
            if number == arguments["count"] // 2:
                self.text(request_id, "said a lot")

    def go_deaf(self, request_id: Any, arguments: dict[str, Any]) -> None:
        """Answer, and hear nothing from then on."""
        self.text(request_id, "what?")
        time.sleep(60)

    def change(self, request_id: Any, arguments: dict[str, Any]) -> None:
        self._change()
        for _ in range(50):
            note: dict[str, Any] = {"method": "notifications/tools/list_changed", "params": {}}
            if self.subscription is not None:
                note["params"] = {"_meta": {"io.modelcontextprotocol/subscriptionId": self.subscription}}
            self.send(note)
        self.text(request_id, "changed")

    def change_quietly(self, request_id: Any, arguments: dict[str, Any]) -> None:
        self._change()
        self.text(request_id, "changed")

    def _change(self) -> None:
        self.tools["fresh"] = {"name": "fresh", "description": "new", "inputSchema": ANY}
        self.tools.pop("refuse", None)

    def fresh(self, request_id: Any, arguments: dict[str, Any]) -> None:
        self.text(request_id, "fresh")

    def decline(self, request_id: Any, arguments: dict[str, Any]) -> None:
        self.refuse(request_id, -31001, "not today", {"why": [1, 2]})

    def lie(self, request_id: Any, arguments: dict[str, Any]) -> None:
        self.text(request_id, "no number", structuredContent={"n": "seven"})

    def no_result(self, request_id: Any, arguments: dict[str, Any]) -> None:
        self.answer(request_id, {"surprise": True})

    def input_required(self, request_id: Any, arguments: dict[str, Any]) -> None:
        self.answer(request_id, {"resultType": "input_required", "inputRequests": {}, "requestState": "x"})

    def text_id(self, request_id: Any, arguments: dict[str, Any]) -> None:
        self.text(str(request_id), "by text")

    def null_error(self, request_id: Any, arguments: dict[str, Any]) -> None:
        self.send({"id": request_id, "error": None, "result": {"content": []}})

    def ask_back(self, request_id: Any, arguments: dict[str, Any]) -> None:
        self.send({"id": "s1", "method": "sampling/createMessage", "params": {}})
        self.send({"id": "s2", "method": "ping"})
        self.text(request_id, "asked")


BAD_TOOLS: list[Any] = [
    {"name": "no_schema"},
    {"name": "bad_type", "inputSchema": {"type": "no-such-type"}},
    {"name": "no_object", "inputSchema": "text"},
    {"name": "far_away", "inputSchema": {"type": "object", "$ref": "https://example.com/schema.json"}},
    {"name": "bad_pattern", "inputSchema": {"type": "object", "properties": {"a": {"pattern": "("}}}},
    {"name": "bad_output", "inputSchema": ANY, "outputSchema": 7},
    {"inputSchema": ANY},
    {"name": 7, "inputSchema": ANY},
    "not a tool",
]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", default="2025-11-25")
    parser.add_argument("--start", default="")
    parser.add_argument("--log", default="")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Server(options).run()


if __name__ == "__main__":
    main()
