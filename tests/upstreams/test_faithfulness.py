"""The same script, against a server directly and through `toolpost serve`, sees the same: every field, in its order.

Client on stdio and HTTP, in both eras; servers on stdio and HTTP, of both eras; real ones and those of the official SDK.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loaded import loaded
from tests.upstreams.behind import SERVERS
from tests.upstreams.comparing import (
    Compared,
    Script,
    Seen,
    before_the_stateless_era,
    calls,
    configured,
    differences,
    on_stdio,
    running,
    seen_by,
    seen_directly,
    serving_http,
    through_http,
    through_stdio,
)
from tests.ways import STATELESS
from toolpost.net.client import HttpClient

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

ORDINARY = str(SERVERS / "sdk_server.py")
LIBRARY = str(SERVERS / "library.py")

ORDINARY_SCRIPT = calls(
    ("add", {"a": 1, "b": 2.5}),
    ("picture", {}),
    ("fail", {}),
    ("refuse", {}),
    ("dotted.name", {}),
    ("mixed", {}),
)

TIME_SCRIPT = calls(
    ("convert_time", {"source_timezone": "Europe/Zurich", "time": "12:30", "target_timezone": "Asia/Tokyo"}),
    ("convert_time", {"source_timezone": "Nowhere/Land", "time": "12:30", "target_timezone": "Asia/Tokyo"}),
    ("get_current_time", {"timezone": "No/Where"}),
)

LIBRARY_SCRIPT: Script = [
    ("resources/read", {"uri": "book://one"}),
    ("resources/read", {"uri": "book://shelf/7"}),
    ("prompts/get", {"name": "review", "arguments": {"title": "Moby-Dick"}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "title", "value": "Mo"}},
    ),
]

LISTS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a repository with a change in it."""
    folder = tmp_path_factory.mktemp("repository")
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    (folder / "file").write_text("grüezi\n")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *arguments], check=True)
    (folder / "file").write_text("grüezi mitenand\n")
    return folder


def git_script(folder: Path) -> Script:
    return calls(
        ("git_status", {"repo_path": str(folder)}),
        ("git_diff_unstaged", {"repo_path": str(folder)}),
        ("git_log", {"repo_path": str(folder), "max_count": 1}),
        ("git_show", {"repo_path": str(folder), "revision": "no-such-thing"}),
        ("git_status", {"repo_path": "/nowhere/at/all"}),
    )


def program(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def of_both_eras(repository: Path) -> list[Compared]:
    """Return servers on stdio that know both eras."""
    return [
        on_stdio("ordinary", loaded(ORDINARY), ORDINARY_SCRIPT),
        on_stdio("time", loaded(program("mcp-server-time")), TIME_SCRIPT),
        on_stdio("git", loaded(program("mcp-server-git")), git_script(repository)),
        on_stdio("library", loaded(LIBRARY), LIBRARY_SCRIPT, lists=LISTS[1:]),
    ]


@pytest.fixture(scope="module")
def webs() -> Iterator[list[Compared]]:
    """Run the ordinary server over HTTP, as one of each era."""
    command = loaded("-m", "tests.upstreams.servers.web")
    with running(command) as modern, running([*command, "--handshake-only"]) as handshake:
        yield [
            Compared(name="web", where={"url": modern}, script=ORDINARY_SCRIPT),
            Compared(name="web-old", where={"url": handshake}, script=ORDINARY_SCRIPT),
        ]


@pytest.fixture(scope="module")
def servers(repository: Path, webs: list[Compared]) -> list[Compared]:
    known = of_both_eras(repository)
    return [*known, *map(before_the_stateless_era, known), *webs]


@pytest.fixture(scope="module")
def path(servers: list[Compared], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("project") / "toolpost.toml"
    path.write_text(configured(servers))
    return path


@pytest.fixture(scope="module")
def url(path: Path) -> Iterator[str]:
    """Serve over HTTP, once for clients of both eras."""
    with serving_http(path) as url:
        yield url


@pytest.fixture(scope="module")
def direct() -> dict[bool, dict[str, Seen]]:
    """Keep what clients of each era see without a gateway: it is looked at once."""
    return {}


@pytest.mark.parametrize(
    ("front", "is_stateless"),
    [
        pytest.param("stdio", False, id="stdio-handshake"),
        pytest.param("stdio", True, id="stdio-modern", marks=pytest.mark.soak),
        pytest.param("http", False, id="http-handshake", marks=pytest.mark.soak),
        pytest.param("http", True, id="http-modern"),
    ],
)
async def test_every_server_is_the_same(
    front: str,
    is_stateless: bool,
    servers: list[Compared],
    repository: Path,
    path: Path,
    url: str,
    direct: dict[bool, dict[str, Seen]],
) -> None:
    if is_stateless not in direct:
        direct[is_stateless] = await seen_directly(of_both_eras(repository), is_stateless=is_stateless)
    expected = direct[is_stateless]
    way = through_stdio(path, servers, is_stateless=is_stateless) if front == "stdio" else None
    async with way or through_http(url, servers, is_stateless=is_stateless) as ask:
        found = {server.name: await seen_by(ask, server, is_direct=False) for server in servers}

    for name, seen in found.items():
        wanted = expected[name.removesuffix("-old").replace("web", "ordinary")]
        # The SDK orders the fields in each era as it likes: they are compared where the gateway asked in the client's.
        is_same_era = is_stateless != name.endswith("-old")
        told = differences(seen, wanted, in_order=is_same_era, eras_differ=not is_same_era, on_pipe=front == "stdio")
        assert not told, f"{name}: {''.join(told)}"


async def test_each_server_was_met_in_its_own_era(url: str, servers: list[Compared]) -> None:
    async with HttpClient(url.removesuffix("/mcp") + "/api/servers") as client:
        reports = json.loads((await client.request("GET")).body)["servers"]

    assert {report["name"]: report["version"] for report in reports} == {
        server.name: "2025-11-25" if server.name.endswith("-old") else STATELESS for server in servers
    }
