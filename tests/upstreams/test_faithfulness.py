"""The same script, against a server directly and through the gateway, sees the same: every field, in its order."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from tests.upstreams.behind import SERVERS
from tests.upstreams.raw import Ask, raw_http, raw_stdio
from tests.upstreams.servers import sdk_server
from tests.upstreams.servers.http_server import serving
from tests.ways import IN_MEMORY
from toolpost.app import open_app, open_http
from toolpost.contracts.ids import META_KEY
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks")]

SERVER_INFO = "io.modelcontextprotocol/serverInfo"
ORDINARY = (sys.executable, str(SERVERS / "sdk_server.py"))
GATEWAY = (sys.executable, "-m", "tests.upstreams.servers.gateway")
PLACES = [Path(sys.executable).parent]

Calls = list[tuple[str, dict[str, Any]]]

ORDINARY_CALLS: Calls = [
    ("add", {"a": 1, "b": 2.5}),
    ("picture", {}),
    ("fail", {}),
    ("refuse", {}),
    ("dotted.name", {}),
    ("mixed", {}),
]


TIME_CALLS: Calls = [
    ("convert_time", {"source_timezone": "Europe/Zurich", "time": "12:30", "target_timezone": "Asia/Tokyo"}),
    ("convert_time", {"source_timezone": "Nowhere/Land", "time": "12:30", "target_timezone": "Asia/Tokyo"}),
    ("get_current_time", {"timezone": "No/Where"}),
]


@pytest.mark.parametrize("is_modern", [False, True], ids=["handshake", "modern"])
@pytest.mark.parametrize("front", ["stdio", "http"])
async def test_servers_are_the_same_on_every_pair_of_transports(front: str, is_modern: bool, tmp_path: Path) -> None:
    """An ordinary server on stdio and over HTTP, and real ones: `mcp-server-time` and `mcp-server-git`."""
    async with ordinary_over_http() as url:
        servers = [
            Compared("ordinary", {"command": list(ORDINARY)}, ORDINARY_CALLS),
            Compared("web", {"url": url}, ORDINARY_CALLS),
            *real_servers(tmp_path),
        ]
        expected = await seen_directly(servers, is_modern=is_modern)
        async with through(front, servers, is_modern=is_modern) as ask:
            found = {server.name: await seen_by(ask, server.calls, prefix=f"{server.name}__") for server in servers}

    for server in servers:
        assert_same(found[server.name], expected[server.name], is_modern=is_modern)


async def test_real_servers_are_there_to_compare_with(tmp_path: Path) -> None:
    assert [server.name for server in real_servers(tmp_path)] == ["time", "git"]


@dataclass(frozen=True)
class Compared:
    """A server, where it is, and what is asked of it."""

    name: str
    where: dict[str, Any]
    calls: Calls

    def opened(self, *, is_modern: bool) -> AbstractAsyncContextManager[Ask]:
        """Talk to it directly."""
        if "url" in self.where:
            return raw_http(self.where["url"], is_modern=is_modern)
        return raw_stdio(self.where["command"], is_modern=is_modern)


def real_servers(folder: Path) -> list[Compared]:
    """Return the real servers that are installed here."""
    calls = {"time": TIME_CALLS, "git": git_calls(folder)}
    commands = {name: program(f"mcp-server-{name}") for name in calls}
    return [Compared(name, {"command": [command]}, calls[name]) for name, command in commands.items() if command]


def program(name: str) -> str | None:
    return next((str(place / name) for place in PLACES if (place / name).exists()), None)


def git_calls(folder: Path) -> Calls:
    """Make a repository, and return what is asked about it."""
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    (folder / "file").write_text("grüezi\n")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *arguments], check=True)
    (folder / "file").write_text("grüezi mitenand\n")
    return [
        ("git_status", {"repo_path": str(folder)}),
        ("git_diff_unstaged", {"repo_path": str(folder)}),
        ("git_log", {"repo_path": str(folder), "max_count": 1}),
        ("git_show", {"repo_path": str(folder), "revision": "no-such-thing"}),
        ("git_status", {"repo_path": "/nowhere/at/all"}),
    ]


@asynccontextmanager
async def ordinary_over_http() -> AsyncIterator[str]:
    manager = StreamableHTTPSessionManager(app=sdk_server.server)
    async with manager.run(), serving(manager.handle_request) as url:
        yield url


@asynccontextmanager
async def through(front: str, servers: list[Compared], *, is_modern: bool) -> AsyncIterator[Ask]:
    """Open a gateway with these servers behind it."""
    specs: list[dict[str, Any]] = [{"name": server.name, **server.where} for server in servers]
    if front == "stdio":
        async with raw_stdio([*GATEWAY, *map(json.dumps, specs)], is_modern=is_modern) as ask:
            yield ask
        return
    async with open_app(IN_MEMORY, bundled=False, servers=[ServerSpec(**spec) for spec in specs]) as app:
        async with open_http(app) as url, raw_http(url, is_modern=is_modern) as ask:
            yield ask


async def seen_directly(servers: list[Compared], *, is_modern: bool) -> dict[str, Any]:
    """Ask every server without a gateway, side by side."""
    seen: dict[str, Any] = {}

    async def see(server: Compared) -> None:
        async with server.opened(is_modern=is_modern) as ask:
            seen[server.name] = await seen_by(ask, server.calls)

    async with anyio.create_task_group() as tasks:
        for server in servers:
            tasks.start_soon(see, server)
    return seen


async def seen_by(ask: Ask, calls: Calls, prefix: str = "") -> dict[str, Any]:
    """List all tools and make the calls; what the gateway may add is taken out."""
    tools: list[Any] = []
    params: dict[str, Any] = {}
    while True:
        page = (await ask("tools/list", params))["result"]
        tools += page["tools"]
        if "nextCursor" not in page:
            break
        params = {"cursor": page["nextCursor"]}
    answers = [await ask("tools/call", {"name": named(name, prefix), "arguments": args}) for name, args in calls]
    return {
        "tools": {
            tool["name"].removeprefix(prefix): without_ours(tool) for tool in tools if tool["name"].startswith(prefix)
        },
        "answers": [without_ours(answer.get("result") or answer["error"]) for answer in answers],
    }


def named(name: str, prefix: str) -> str:
    return f"{prefix}{name.replace('.', '_')}" if prefix else name


def without_ours(value: dict[str, Any]) -> dict[str, Any]:
    meta = {key: kept for key, kept in (value.get("_meta") or {}).items() if key not in (META_KEY, SERVER_INFO)}
    rest = {key: kept for key, kept in value.items() if key not in ("name", "_meta")}
    return rest | ({"_meta": meta} if meta else {})


def assert_same(found: dict[str, Any], expected: dict[str, Any], *, is_modern: bool) -> None:
    by_our_name = {name.replace(".", "_"): tool for name, tool in expected["tools"].items()}

    assert found["tools"].keys() == by_our_name.keys()
    for name, tool in by_our_name.items():
        assert found["tools"][name] == tool
        if is_modern:
            # The SDK orders the fields in each era as it likes, and the gateway asked in this one.
            assert json.dumps(found["tools"][name]) == json.dumps(tool), "a field has another place"
    assert json.dumps(found["answers"], sort_keys=not is_modern) == json.dumps(
        expected["answers"], sort_keys=not is_modern
    )
