"""Makes the stores of this folder, with an earlier Toolpost: a gateway is served, called and ended, then its store is dumped.

    git worktree add /tmp/earlier 502978a1 && cd /tmp/earlier && scripts/setup dev
    .venv/bin/python /path/to/tests/store/earlier/make.py 502978a1

It runs in that worktree, with its packages, and writes `NAME.sqlite.sql.xz` and `NAME.postgres.sql.xz` beside itself.
"""

import http.client
import itertools
import json
import lzma
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PYTHON = sys.executable
TOOLPOST = str(Path(PYTHON).parent / "toolpost")
STATELESS = "2026-07-28"
TOKENS = {"ann": "token-of-ann-0123456789", "ben": "token-of-ben-0123456789"}

PLUGIN = """
import anyio
from toolpost import Plugin

plugin = Plugin("shop", version="1.0.0")


@plugin.tool
async def price(item: str) -> int:
    "Return the price of an item."
    return len(item)


@plugin.tool
async def pay(amount: int) -> str:
    "Pay an amount."
    return f"paid {amount}"


@plugin.tool
async def fail(reason: str) -> str:
    "Fail with a reason."
    raise RuntimeError(reason)


@plugin.tool
async def report(lines: int) -> str:
    "Return a long report."
    return "\\n".join(f"line {number}" for number in range(lines))


@plugin.tool
async def wait() -> str:
    "Wait for ten minutes."
    await anyio.sleep(600)
    return "done"
"""

SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("notes", version="2.0.0", instructions="Notes of a team.")


@server.tool()
def read(name: str) -> str:
    "Read a note."
    return f"note {name}"


@server.tool()
def write(name: str, text: str) -> str:
    "Write a note."
    return f"wrote {name}"


server.run()
"""

CONFIG = """
[store]
url = {url}

[http]
listen = "127.0.0.1:{port}"

[plugins]
load = ["shop:plugin"]
bundled = ["bus", "trail", "approvals", "results", "models", "time"]

[servers.notes]
command = {python}
args = ["notes.py"]
env = {{ KEY = "${{caller:KEY}}" }}

[bus]
attempts = 1
stuck_s = 1
beads = "off"

[tasks]
after_s = 0

[results]
limit_tokens = 300

[trail]
sessions = "all"

[approvals.rules.payments]
tools = ["shop__pay"]
voters = ["ben"]
wait = false

[login]
enabled = true

[agents.helper]
command = {python}
args = ["-m", "{agent}"]

[export.copy]
path = "audit.jsonl"

[callers.ann]
{token_of_ann}
admin = true

[callers.ben]
{token_of_ben}
"""


class Gateway:
    """A served gateway, asked over HTTP."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._port = port
        self._ids = itertools.count(1)

    def __enter__(self) -> "Gateway":
        self._log = (self._folder / "log").open("ab")
        self._process = subprocess.Popen([TOOLPOST, "serve"], cwd=self._folder, stdout=self._log, stderr=self._log)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return self
            time.sleep(0.1)
        raise SystemExit((self._folder / "log").read_text())

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)
        self._log.close()

    def kill(self) -> None:
        self._process.kill()

    def request(self, path: str, body: Any, by: str = "ann", **headers: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        sent = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream" if path == "/mcp" else "application/json",
            "Authorization": f"Bearer {TOKENS[by]}",
        }
        try:
            connection.request("POST", path, json.dumps(body), sent | headers)
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        return json.loads(text)

    def ask(self, method: str, params: dict[str, Any], *, by: str = "ann", as_task: bool = False) -> Any:
        capabilities: Any = {"extensions": {"io.modelcontextprotocol/tasks": {}}} if as_task else {}
        meta = {
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        }
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": meta}}
        name = str(params.get("name") or params.get("taskId") or "")
        headers = {"MCP-Protocol-Version": STATELESS, "Mcp-Method": method, "Mcp-Name": name}
        return self.request("/mcp", body, by=by, **headers)["result"]

    def call(self, name: str, /, *, by: str = "ann", as_task: bool = False, **arguments: Any) -> Any:
        result = self.ask("tools/call", {"name": name, "arguments": arguments}, by=by, as_task=as_task)
        if as_task:
            return result
        shown = result.get("structuredContent", result)
        print(name, json.dumps(shown)[:160])
        return shown


def use(gateway: Gateway) -> None:
    """Leave rows in every table."""
    for item in ("tea", "coffee", "milk"):
        gateway.call("shop__price", item=item)
    gateway.call("shop__fail", reason="sold out")
    gateway.call("shop__price", wrong=1)
    gateway.call("shop__pay", amount=5)
    gateway.call("shop__report", lines=900)
    gateway.call("notes__read", name="monday")
    gateway.call("tasks__add", title="Buy milk")
    gateway.call("approvals__consensus_propose", text="Close on Friday", voters=["ann", "ben"])
    gateway.call("approvals__consensus_vote", by="ben", round_id="2", choice="approve")
    gateway.call("trail__audit_session_start", intent="When do we close?", session_id="close")
    gateway.call("trail__thought_record", type="decision", agent_id="planner", content="Friday", session_id="close")
    gateway.call("trail__merkle_finalize", session_id="close")
    use_bus(gateway)
    use_tasks(gateway)
    thread = gateway.request("/api/threads", {"title": "Monday"})["id"]
    for text in ("say hello", 'call shop__price {"item": "tea"}', "count"):
        print("thread", gateway.request(f"/api/threads/{thread}/messages", {"text": text}).get("text"))
    print("client", str(gateway.request("/register", {"redirect_uris": ["http://127.0.0.1:9/"]}))[:80])


def use_bus(gateway: Gateway) -> None:
    """Leave tasks that are done, blocked, dead, waiting and queued."""
    gateway.call("bus__register_worker", name="ada")
    for task in ("t-done", "t-blocked", "t-dead"):
        gateway.call("bus__submit_task", bead_id=task, payload={"for": task})
        offered = gateway.call("bus__poll_task", name="ada", timeout_ms=5000)["task"]
        token = {"lease_token": offered["lease_token"]}
        gateway.call("bus__ack_task", name="ada", bead_id=task, **token)
        if task == "t-done":
            gateway.call("bus__worker_done", bead_id=task, result={"ok": True}, **token)
        if task == "t-blocked":
            gateway.call("bus__task_failed", bead_id=task, reason="no key", **token)
    deadline = time.monotonic() + 60
    while gateway.call("bus__get_task", bead_id="t-dead")["state"] != "dead":
        assert time.monotonic() < deadline
        time.sleep(0.5)
    gateway.call("bus__reset_worker", worker_name="ada")
    gateway.call("bus__submit_task", bead_id="t-queued", payload="later", dedupe_key="once")
    gateway.call("bus__submit_task", bead_id="t-waiting", depends_on=["t-queued"])


def use_tasks(gateway: Gateway) -> None:
    """Leave one that is completed, and one that works until the gateway is killed."""
    handle = gateway.call("notes__write", name="tuesday", text="rest", as_task=True)
    while handle.get("taskId") and handle["status"] == "working":
        handle = gateway.ask("tasks/get", {"taskId": handle["taskId"]}, as_task=True)
    print("task", str(handle)[:160])
    print("task", str(gateway.call("shop__wait", as_task=True))[:160])


def make_store(folder: Path, url: str, version: str) -> None:
    """Serve a gateway on a store, twice: the first run is killed."""
    is_first = version == "502978a1"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "shop.py").write_text(PLUGIN)
    (folder / "notes.py").write_text(SERVER)
    tokens = {}
    for name, token in TOKENS.items():
        (folder / f"{name}.token").write_text(token)
        tokens[f"token_of_{name}"] = f'token_file = "{name}.token"' if is_first else f'token = "${{file:{name}.token}}"'
    agent = "toolpost.trial_agent" if is_first else "toolpost.parts.agents.trial_agent"
    text = CONFIG.format(url=json.dumps(url), port=port, python=json.dumps(PYTHON), agent=agent, **tokens)
    (folder / "toolpost.toml").write_text(text)
    (folder / "key.txt").write_text("key-of-ann-at-notes")
    command = ["credentials", "set"] if is_first else ["auth", "set"]
    command = [TOOLPOST, *command, "notes", "KEY", "--caller", "ann", "--file", "key.txt"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    with Gateway(folder, port) as gateway:
        use(gateway)
        gateway.kill()
    with Gateway(folder, port) as gateway:
        gateway.call("shop__price", item="bread", by="ben")
    subprocess.run([TOOLPOST, "store", "status"], cwd=folder, check=True, timeout=60)


def write(name: str, text: str) -> None:
    path = HERE / f"{name}.sql.xz"
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(path.name, len(text), path.stat().st_size)


def main(version: str) -> None:
    os.environ["NO_COLOR"] = "1"
    sys.path.insert(0, str(Path.cwd()))
    with tempfile.TemporaryDirectory() as folder:
        make_store(Path(folder), "sqlite:store.db", version)
        with closing(sqlite3.connect(Path(folder) / "store.db")) as connection:
            write(f"{version}.sqlite", "\n".join(connection.iterdump()))
    from tests.postgres import open_postgres

    with open_postgres() as postgres, tempfile.TemporaryDirectory() as folder:
        make_store(Path(folder), f"{postgres.uri}&schema=earlier_store", version)
        dump = [
            str(postgres._server.bin_path / "pg_dump"),
            postgres.uri,
            "--schema=earlier_store",
            "--no-owner",
            "--no-acl",
        ]
        text = subprocess.run(dump, check=True, capture_output=True, text=True, timeout=60).stdout
        # What psql of another version does not know.
        lines = [
            line for line in text.splitlines() if not line.startswith(("\\restrict", "\\unrestrict", "--")) and line
        ]
        write(f"{version}.postgres", "\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1])
