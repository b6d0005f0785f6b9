"""The same script, against a server directly and through the gateway, sees the same: every field, in its order."""

import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

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
PLACES = [Path(sys.executable).parent, Path("/tmp/v/bin")]

Calls = list[tuple[str, dict[str, Any]]]

ORDINARY_CALLS: Calls = [
    ("add", {"a": 1, "b": 2.5}),
    ("picture", {}),
    ("fail", {}),
    ("refuse", {}),
    ("dotted.name", {}),
    ("mixed", {}),
]


@pytest.mark.parametrize("is_modern", [False, True], ids=["handshake", "modern"])
@pytest.mark.parametrize("front", ["stdio", "http"])
@pytest.mark.parametrize("back", ["stdio", "http"])
async def test_an_ordinary_server_is_the_same_on_every_pair_of_transports(
    front: str, back: str, is_modern: bool
) -> None:
    async with ordinary(back, is_modern=is_modern) as (direct, spec):
        expected = await seen_by(direct, ORDINARY_CALLS)
        async with through(front, spec, is_modern=is_modern) as ask:
            found = await seen_by(ask, ORDINARY_CALLS, prefix="up__")

    assert_same(found, expected, is_modern=is_modern)


@pytest.mark.parametrize("is_modern", [False, True], ids=["handshake", "modern"])
@pytest.mark.parametrize("front", ["stdio", "http"])
async def test_the_time_server_is_the_same(front: str, is_modern: bool) -> None:
    calls: Calls = [
        ("convert_time", {"source_timezone": "Europe/Zurich", "time": "12:30", "target_timezone": "Asia/Tokyo"}),
        ("convert_time", {"source_timezone": "Nowhere/Land", "time": "12:30", "target_timezone": "Asia/Tokyo"}),
        ("get_current_time", {"timezone": "No/Where"}),
    ]
    await compare([program("mcp-server-time")], calls, front=front, is_modern=is_modern)


@pytest.mark.parametrize("is_modern", [False, True], ids=["handshake", "modern"])
@pytest.mark.parametrize("front", ["stdio", "http"])
async def test_the_git_server_is_the_same(front: str, is_modern: bool, tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    (tmp_path / "file").write_text("grüezi\n")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *arguments], check=True)
    (tmp_path / "file").write_text("grüezi mitenand\n")
    calls: Calls = [
        ("git_status", {"repo_path": str(tmp_path)}),
        ("git_diff_unstaged", {"repo_path": str(tmp_path)}),
        ("git_log", {"repo_path": str(tmp_path), "max_count": 1}),
        ("git_show", {"repo_path": str(tmp_path), "revision": "no-such-thing"}),
        ("git_status", {"repo_path": "/nowhere/at/all"}),
    ]
    await compare([program("mcp-server-git")], calls, front=front, is_modern=is_modern)


async def test_the_everything_server_is_the_same() -> None:
    found = shutil.which("mcp-server-everything")
    if found is None:
        pytest.skip("npm's @modelcontextprotocol/server-everything is not installed, and npx has no network here")


async def compare(command: list[str], calls: Calls, *, front: str, is_modern: bool) -> None:
    async with raw_stdio(command, is_modern=is_modern) as direct:
        expected = await seen_by(direct, calls)
    async with through(front, {"name": "up", "command": command}, is_modern=is_modern) as ask:
        found = await seen_by(ask, calls, prefix="up__")

    assert_same(found, expected, is_modern=is_modern)


def program(name: str) -> str:
    """Find a real server, or skip with a line that says what is missing."""
    if found := next((place / name for place in PLACES if (place / name).exists()), None):
        return str(found)
    pytest.skip(f"`{name}` is not installed: add it to the dev group")


@asynccontextmanager
async def ordinary(back: str, *, is_modern: bool) -> AsyncIterator[tuple[Ask, dict[str, Any]]]:
    """Start the ordinary server; yields a way to it, and how the gateway finds it."""
    if back == "stdio":
        async with raw_stdio(ORDINARY, is_modern=is_modern) as ask:
            yield ask, {"name": "up", "command": list(ORDINARY)}
        return
    manager = StreamableHTTPSessionManager(app=sdk_server.server)
    async with manager.run(), serving(manager.handle_request) as url:
        async with raw_http(url, is_modern=is_modern) as ask:
            yield ask, {"name": "up", "url": url}


@asynccontextmanager
async def through(front: str, spec: dict[str, Any], *, is_modern: bool) -> AsyncIterator[Ask]:
    """Open a gateway with this server behind it."""
    if front == "stdio":
        async with raw_stdio([*GATEWAY, json.dumps(spec)], is_modern=is_modern) as ask:
            yield ask
        return
    async with open_app(IN_MEMORY, bundled=False, servers=[ServerSpec(**spec)]) as app, open_http(app) as url:
        async with raw_http(url, is_modern=is_modern) as ask:
            yield ask


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
        "tools": {tool["name"].removeprefix(prefix): without_ours(tool) for tool in tools},
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
