"""A worker, or the planner, of the torture: a process of its own that asks again and again, and writes down what it was told.

Needs nothing but the standard library, so that it starts quickly: `python -S -E torture_worker.py work|plan …`.
"""

import http.client
import json
import os
import random
import sys
import time
from typing import Any

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "dev.toolpost/meta": {"renews": True},
}


class Refused(Exception):
    """The bus said no, under this code."""


class Bus:
    """Asks until somebody answers: a server that is gone is asked again, or another one."""

    def __init__(self, hosts: list[str]) -> None:
        self.hosts = hosts
        self.turn = random.randrange(len(hosts))
        self.connection: http.client.HTTPConnection | None = None

    def ask(self, tool: str, **arguments: Any) -> Any:
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        body["params"] = {"name": tool, "arguments": arguments, "_meta": META}
        data = json.dumps(body)
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
            "Mcp-Method": "tools/call",
            "Mcp-Name": tool,
        }
        while True:
            try:
                if self.connection is None:
                    self.connection = http.client.HTTPConnection(self.hosts[self.turn], timeout=60)
                self.connection.request("POST", "/mcp", data, headers)
                answer = json.loads(self.connection.getresponse().read())
                result = answer["result"]
            except (OSError, http.client.HTTPException, ValueError, KeyError):
                # Whether it was done is not known: asking once more must be safe.
                if self.connection is not None:
                    self.connection.close()
                self.connection = None
                self.turn = (self.turn + 1) % len(self.hosts)
                time.sleep(0.05)
                continue
            if not result["isError"]:
                return result["structuredContent"]
            code = result["_meta"]["dev.toolpost/meta"]["code"]
            if code in ("INTERNAL", "CANCELLED", "TOOL_TIMEOUT", "QUEUE_OVERLOADED"):
                time.sleep(0.05)
                continue
            raise Refused(code)


def note(log: int, *words: str) -> None:
    os.write(log, (" ".join(words) + "\n").encode())


def work(bus: Bus, log: int, name: str, work_s: float) -> None:
    name = bus.ask("register_worker", name=name)["worker"]
    while True:
        try:
            task = bus.ask("poll_task", name=name, timeout_ms=1500)["task"]
            if task is None:
                continue
            task_id, token = task["bead_id"], task["lease_token"]
            bus.ask("ack_task", name=name, bead_id=task_id, lease_token=token)
        except Refused as refusal:
            note(log, "refused", "-", str(refusal), "-")
            continue
        note(log, "begun", task_id, token, f"{time.time():.3f}")
        time.sleep(random.random() * 2 * work_s)
        note(log, "saying", task_id, token, f"{time.time():.3f}")
        try:
            bus.ask("worker_done", bead_id=task_id, lease_token=token, result={"by": name})
        except Refused as refusal:
            note(log, "stale" if str(refusal) == "STALE_LEASE" else f"wrong:{refusal}", task_id, token, "-")
        else:
            note(log, "done", task_id, token, f"{time.time():.3f}")


def plan(bus: Bus, log: int, first: int, count: int) -> None:
    for number in range(first, first + count):
        try:
            bus.ask("submit_task", bead_id=f"t-{number}", payload={"n": number})
        except Refused as refusal:
            # A submit whose answer was lost may find its task begun, or done.
            note(log, "known", f"t-{number}", str(refusal), "-")
        else:
            note(log, "submitted", f"t-{number}", "-", "-")


def main() -> None:
    what, hosts, path, *rest = sys.argv[1:]
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    bus = Bus(hosts.split(","))
    if what == "work":
        work(bus, log, rest[0], float(rest[1]))
    else:
        plan(bus, log, int(rest[0]), int(rest[1]))


if __name__ == "__main__":
    main()
