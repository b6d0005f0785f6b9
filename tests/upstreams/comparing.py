"""One script, asked of a server directly and through the gateway, and what may differ between the two: nearly nothing.

A server is `Compared`; its script is a list of requests. `differences` is empty where every field is the same.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import psutil

from tests.loaded import forked, loaded_toolpost
from tests.upstreams.behind import SERVERS
from tests.upstreams.raw import Ask, raw_http, raw_stdio
from tests.ways import TOOLPOST, server_environment
from toolpost.base.ids import META_KEY

HANDSHAKE_ONLY = (sys.executable, "-S", "-E", str(SERVERS / "handshake_only.py"))
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
OURS = (META_KEY, SERVER_INFO)

STATELESS_ONLY = ("resultType", "ttlMs", "cacheScope")
"""What an answer of the stateless era has, and one of a server from before it cannot have."""

Script = Sequence[tuple[str, dict[str, Any]]]
Seen = list[dict[str, Any]]


def calls(*named: tuple[str, dict[str, Any]]) -> Script:
    """Make a script of calls alone."""
    return [("tools/call", {"name": name, "arguments": arguments}) for name, arguments in named]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A server, where it is, and what is asked of it."""

    name: str
    where: dict[str, Any]
    script: Script
    lists: Sequence[str] = ("tools/list",)
    leaves_out: frozenset[str] = field(default_factory=frozenset)
    """Tools that a server offers to a client of its own alone."""

    def opened(self, *, is_stateless: bool) -> AbstractAsyncContextManager[Ask]:
        """Talk to it directly."""
        if "url" in self.where:
            return raw_http(self.where["url"], is_stateless=is_stateless)
        return raw_stdio([self.where["command"], *self.where["args"]], is_stateless=is_stateless)


def on_stdio(name: str, command: Sequence[str], script: Script, **options: Any) -> Compared:
    """Return a server that a command starts."""
    return Compared(name=name, where={"command": command[0], "args": list(command[1:])}, script=script, **options)


def before_the_stateless_era(server: Compared) -> Compared:
    """Return the same server on stdio as one that knows only the handshake."""
    words = [*HANDSHAKE_ONLY, server.where["command"], *server.where["args"]]
    where = {"command": words[0], "args": words[1:]}
    return Compared(name=f"{server.name}-old", where=where, script=server.script, lists=server.lists)


async def seen_by(ask: Ask, server: Compared, *, is_direct: bool) -> Seen:
    """Go through the script, and return what was seen without what the gateway may add."""
    prefix = "" if is_direct else f"{server.name}__"
    seen = [{"asked": method, **(await _listed(ask, method, prefix, server))} for method in server.lists]
    for method, params in server.script:
        answer = await ask(method, _renamed(params, prefix))
        notes = [_progress(note["params"]) for note in ask.heard if note.get("method") == "notifications/progress"]
        told = _without_ours(answer["result"]) if "result" in answer else {"error": answer["error"]}
        seen.append({"asked": method, "params": params, "answer": told, "progress": notes})
    return seen


async def _listed(ask: Ask, method: str, prefix: str, server: Compared) -> dict[str, Any]:
    items: list[Any] = []
    params: dict[str, Any] = {}
    while True:
        page = (await ask(method, params))["result"]
        items += page[_field_of(method)]
        if "nextCursor" not in page:
            break
        params = {"cursor": page["nextCursor"]}
    # Resources keep their URIs: those of the same server in another era are there twice.
    unique = {json.dumps(item): item for item in items if _is_of(item, prefix, method)}
    kept = [_listed_item(item, prefix) for item in unique.values()]
    # The gateway lists tools by name, whatever the order in which a server has them.
    return {"items": sorted((item for item in kept if item["name"] not in server.leaves_out), key=lambda i: i["name"])}


def _field_of(method: str) -> str:
    return "resourceTemplates" if method == "resources/templates/list" else method.partition("/")[0]


def _is_of(item: dict[str, Any], prefix: str, method: str) -> bool:
    return item["name"].startswith(prefix) or method.startswith("resources/")


def _listed_item(item: dict[str, Any], prefix: str) -> dict[str, Any]:
    name = item["name"].removeprefix(prefix)
    # A name with a character that clients do not take is another one in the gateway's list.
    return {**_without_ours(item), "name": name.replace(".", "_")}


def _renamed(params: dict[str, Any], prefix: str) -> dict[str, Any]:
    if not prefix:
        return params
    if "ref" in params:
        return {**params, "ref": _renamed(params["ref"], prefix)}
    return {**params, "name": f"{prefix}{params['name'].replace('.', '_')}"} if "name" in params else params


def _progress(params: dict[str, Any]) -> list[Any]:
    return [params.get(name) for name in ("progressToken", "progress", "total", "message")]


def _without_ours(value: dict[str, Any]) -> dict[str, Any]:
    rest = {key: kept for key, kept in value.items() if key != "_meta"}
    meta = {key: kept for key, kept in (value.get("_meta") or {}).items() if key not in OURS}
    return rest | ({"_meta": meta} if meta else {})


def differences(found: Seen, expected: Seen, *, in_order: bool, eras_differ: bool, on_pipe: bool = False) -> list[str]:
    """Say what is not the same: in any field, and `in_order` in the order of the fields too.

    `on_pipe` the last progress may be missing: what would come right before the answer is not written there.
    """
    told = []
    for one, other in zip(_comparable(found, eras_differ), _comparable(expected, eras_differ), strict=True):
        if on_pipe and "progress" in one and one["progress"] == other["progress"][:-1]:
            other = other | {"progress": one["progress"]}  # noqa: PLW2901
        texts = [_timeless(json.dumps(value, sort_keys=not in_order, ensure_ascii=False)) for value in (one, other)]
        if texts[0] != texts[1]:
            told.append(f"\nthrough: {texts[0][:3_000]}\ndirect:  {texts[1][:3_000]}")
    return told


def _timeless(text: str) -> str:
    """Take out when something was made: as text, and as a base64 of it."""
    text = re.sub(r"created at [\d:]+ [AP]M", "created", text)
    return re.sub(r"(UmVzb3VyY2Ug\w+YXQg)[\w+/=]+", r"\1", text)


def _comparable(seen: Seen, eras_differ: bool) -> Iterator[dict[str, Any]]:
    for entry in seen:
        answer = entry.get("answer", {})
        if eras_differ:
            answer = {key: value for key, value in answer.items() if key not in STATELESS_ONLY}
        yield entry | {"answer": answer}


async def seen_directly(servers: Sequence[Compared], *, is_stateless: bool) -> dict[str, Seen]:
    """Ask every server without a gateway, side by side."""
    seen: dict[str, Seen] = {}

    async def see(server: Compared) -> None:
        async with server.opened(is_stateless=is_stateless) as ask:
            seen[server.name] = await seen_by(ask, server, is_direct=True)

    async with anyio.create_task_group() as tasks:
        for server in servers:
            tasks.start_soon(see, server)
    return seen


@asynccontextmanager
async def through_stdio(path: Path, servers: Sequence[Compared], *, is_stateless: bool) -> AsyncIterator[Ask]:
    """Start `toolpost serve --stdio`, as a client does, and talk to it once every server has its tools."""
    async with raw_stdio(loaded_toolpost("serve", "--stdio", "--config", str(path)), is_stateless=is_stateless) as ask:
        await all_listed(ask, servers)
        yield ask


@asynccontextmanager
async def through_http(url: str, servers: Sequence[Compared], *, is_stateless: bool) -> AsyncIterator[Ask]:
    """Talk to a `toolpost serve` that runs, once every server has its tools."""
    async with raw_http(url, is_stateless=is_stateless) as ask:
        await all_listed(ask, servers)
        yield ask


async def all_listed(ask: Ask, servers: Sequence[Compared]) -> None:
    """Wait until the tools of every server are listed: on a slow day some come late, and clients are told."""
    missing = {server.name for server in servers if "tools/list" in server.lists}
    with anyio.fail_after(90):
        while missing:
            page = (await ask("tools/list", {}))["result"]
            assert "nextCursor" not in page
            missing -= {tool["name"].partition("__")[0] for tool in page["tools"]}
            await anyio.sleep(0.1)


def configured(servers: Sequence[Compared]) -> str:
    """Write a `toolpost.toml`."""
    lines = ['[store]\nurl = "sqlite::memory:"', '[plugins]\ndisable = ["time"]']
    for server in servers:
        settings = (f"{key} = {json.dumps(value)}" for key, value in server.where.items())
        lines.append("\n".join((f"[servers.{server.name}]", *settings)))
    return "\n\n".join(lines)


@contextmanager
def serving_http(path: Path) -> Iterator[str]:
    """Run `toolpost serve` on a free port; yields the URL of its endpoint, and sees that nothing of it is left."""
    command = [TOOLPOST, "serve", "--listen", "127.0.0.1:0", "--json", "--log-level", "error", "--config", str(path)]
    environment = server_environment() | {"HOME": os.environ.get("HOME", "/")}
    process = forked.start(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"]
        started = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
    assert psutil.wait_procs(started, timeout=30)[1] == []


@contextmanager
def running(command: Sequence[str], **env: str) -> Iterator[str]:
    """Run a server that prints its URL; yields it."""
    environment = server_environment() | env
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().decode().strip()
    finally:
        process.stdin.close()
        process.terminate()
        process.wait(60)
        process.stdout.close()
