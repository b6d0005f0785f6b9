"""npm's own servers, directly and through `toolpost serve`: the same tools, calls, resources, prompts, completions and errors.

`scripts/node-servers` puts them into `.venv/node`. They know only the handshake; clients of both eras come to them.
"""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.upstreams.comparing import (
    Compared,
    Script,
    Seen,
    calls,
    configured,
    differences,
    on_stdio,
    seen_by,
    seen_directly,
    serving_http,
    through_http,
    through_stdio,
)
from tests.ways import server_environment

PLACE = Path(sys.prefix) / "node" / "node_modules" / "@modelcontextprotocol"
NODE = shutil.which("node")


def missing() -> str | None:
    """Say what is not here."""
    if NODE is None:
        return "Node.js is not installed"
    names = [name for name in ("server-everything", "server-filesystem") if not (PLACE / name).exists()]
    return f"npm's {' and '.join(names)} are not in {PLACE}: scripts/node-servers puts them there" if names else None


pytestmark = [pytest.mark.anyio, pytest.mark.skipif(missing() is not None, reason=missing() or "")]

ASKING_BACK: Final = frozenset(
    {
        *("get-roots-list", "trigger-elicitation-request", "trigger-url-elicitation", "trigger-sampling-request"),
        *("trigger-sampling-request-async", "trigger-elicitation-request-async", "simulate-research-query"),
    }
)
"""Tools that are offered to a client with the capabilities for them alone: the one that asks directly here has none."""

LISTS: Final = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")


def prompt(name: str, **arguments: str) -> tuple[str, dict[str, Any]]:
    return "prompts/get", {"name": name, "arguments": arguments}


def completion(ref: dict[str, str], name: str, value: str, **known: str) -> tuple[str, dict[str, Any]]:
    context = {"context": {"arguments": known}} if known else {}
    return "completion/complete", {"ref": ref, "argument": {"name": name, "value": value}, **context}


TEAM: Final = {"type": "ref/prompt", "name": "completable-prompt"}
TEMPLATE: Final = {"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"}

EVERYTHING: Script = [
    *calls(
        ("echo", {"message": "grüezi \u2028 😀"}),
        ("get-annotated-message", {"messageType": "error", "includeImage": True}),
        ("get-resource-links", {"count": 4}),
        ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
        ("get-structured-content", {"location": "Chicago"}),
        ("get-sum", {"a": 1, "b": 2.5}),
        ("get-tiny-image", {}),
        (
            "gzip-file-as-resource",
            {"name": "a.gz", "data": "data:text/plain;base64,aGVsbG8=", "outputType": "resource"},
        ),
        ("gzip-file-as-resource", {"name": "b.gz", "data": "https://nowhere.invalid/", "outputType": "resource"}),
    ),
    (
        "tools/call",
        {
            "name": "trigger-long-running-operation",
            "arguments": {"duration": 2, "steps": 3},
            "_meta": {"progressToken": "long"},
        },
    ),
    ("resources/read", {"uri": "demo://resource/static/document/structure.md"}),
    ("resources/read", {"uri": "demo://resource/dynamic/blob/3"}),
    prompt("simple-prompt"),
    prompt("args-prompt", city="Zürich"),
    prompt("resource-prompt", resourceType="Text", resourceId="2"),
    prompt("resource-prompt", resourceType="Nonsense", resourceId="2"),
    completion(TEAM, "department", "S"),
    completion(TEAM, "name", "", department="Sales"),
    completion(TEMPLATE, "resourceId", "4"),
]


def files_script(folder: Path) -> Script:
    file = str(folder / "notes.txt")
    return calls(
        ("list_allowed_directories", {}),
        ("write_file", {"path": file, "content": "eins\nzwei\n"}),
        ("read_text_file", {"path": file, "head": 1}),
        ("edit_file", {"path": file, "edits": [{"oldText": "zwei", "newText": "drei"}], "dryRun": True}),
        ("read_media_file", {"path": str(folder / "pixel.png")}),
        ("list_directory", {"path": str(folder)}),
        ("search_files", {"path": str(folder), "pattern": "**/*.txt"}),
        ("read_text_file", {"path": "/etc/passwd"}),
        ("read_text_file", {"path": str(folder / "not there")}),
        ("move_file", {"source": str(folder / "not there"), "destination": file}),
    )


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> list[Compared]:
    """Return the servers on stdio; `server-everything` runs over HTTP too."""
    folder = tmp_path_factory.mktemp("files").resolve()
    (folder / "pixel.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    everything = [NODE or "", str(PLACE / "server-everything" / "dist" / "index.js"), "stdio"]
    files = [NODE or "", str(PLACE / "server-filesystem" / "dist" / "index.js"), str(folder)]
    return [
        on_stdio("everything", everything, EVERYTHING, lists=LISTS, leaves_out=ASKING_BACK),
        on_stdio("files", files, files_script(folder)),
    ]


@pytest.fixture(scope="module", params=["streamableHttp", "sse"])
def web(request: pytest.FixtureRequest) -> Iterator[Compared]:
    path = {"streamableHttp": "mcp", "sse": "sse"}[request.param]
    with everything_on_a_port(request.param) as port:
        where = {"url": f"http://127.0.0.1:{port}/{path}"}
        yield Compared(name="web", where=where, script=EVERYTHING, lists=LISTS, leaves_out=ASKING_BACK)


@contextmanager
def everything_on_a_port(transport: str) -> Iterator[int]:
    with socket.socket() as spare:
        spare.bind(("127.0.0.1", 0))
        port: int = spare.getsockname()[1]
    command = [NODE or "", str(PLACE / "server-everything" / "dist" / "index.js"), transport]
    environment = server_environment() | {"PORT": str(port)}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        until = time.monotonic() + 30
        while time.monotonic() < until and not answers(port):
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


_direct: dict[str, Seen] = {}


async def expected_of(servers: list[Compared]) -> dict[str, Seen]:
    """Say what the servers themselves answer; they are asked once for all tests."""
    if not _direct:
        _direct.update(await seen_directly(servers, is_modern=False))
    return _direct


@pytest.mark.parametrize("is_modern", [False, True], ids=["handshake", "modern"])
async def test_servers_on_stdio_are_the_same_on_stdio(is_modern: bool, servers: list[Compared], tmp_path: Path) -> None:
    path = tmp_path / "toolpost.toml"
    path.write_text(configured(servers))
    expected = await expected_of(servers)
    async with through_stdio(path, servers, is_modern=is_modern) as ask:
        for server in servers:
            told = differences(
                await seen_by(ask, server, is_direct=False),
                expected[server.name],
                in_order=not is_modern,
                eras_differ=is_modern,
            )
            assert not told, f"{server.name}: {''.join(told)}"


@pytest.mark.parametrize("is_modern", [False, True], ids=["handshake", "modern"])
async def test_servers_are_the_same_over_http(
    is_modern: bool, web: Compared, servers: list[Compared], tmp_path: Path
) -> None:
    path = tmp_path / "toolpost.toml"
    path.write_text(configured([web]))
    # The same server over SSE has nobody here who could ask it directly: what it answers on stdio is what it is.
    expected = (await expected_of(servers))["everything"]
    with serving_http(path) as url:
        async with through_http(url, [web], is_modern=is_modern) as ask:
            found = await seen_by(ask, web, is_direct=False)

    told = differences(found, expected, in_order=not is_modern, eras_differ=is_modern)
    assert not told, "".join(told)
