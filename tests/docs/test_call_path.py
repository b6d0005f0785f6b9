"""ARCHITECTURE.md names every file that a call passes, and no other: real calls are traced through them."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.endpoints.tasks.asking import HttpPeer
from tests.upstreams.behind import hostile
from tests.ways import BEHAVIOURS, ENVELOPE, IN_MEMORY, ROOT, STATELESS, plugin_of
from toolpost.app import open_app, open_http
from toolpost.settings import Config
from toolpost.upstreams.spec import ServerSpec

pytestmark = pytest.mark.anyio

SOURCES = str(ROOT / "src/toolpost") + "/"
NOT_OF_A_CALL = ("store/", "base/clocks.py", "processes/")
"""The store, with the clock that only it reads, and processes: other threads and later turns of the loop work there too."""


@asynccontextmanager
async def served(*servers: ServerSpec, config: Config = IN_MEMORY) -> AsyncIterator[str]:
    async with open_app(config, plugins=[plugin_of(BEHAVIOURS)], servers=servers, bundled=False) as app:
        async with open_http(app) as url:
            yield url


async def traced(url: str, tool: str) -> set[str]:
    """Return the files of ours that one warm call meets, on a connection that has answered before."""
    host, port = url.split("/")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    request = HttpPeer(url).written("tools/call", {"name": tool, "arguments": {"text": "x"}}, meta=ENVELOPE)
    files: set[str] = set()

    def note(frame: FrameType, what: str, _argument: Any) -> None:
        name = frame.f_code.co_filename
        if what == "call" and name.startswith(SOURCES):
            files.add(name.removeprefix(SOURCES))

    async def call() -> None:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        body = await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))  # type: ignore[index]
        assert b'"isError":true' not in body

    for _ in range(10):
        await call()
    sys.setprofile(note)
    try:
        await call()
    finally:
        sys.setprofile(None)
        writer.close()
    return {name for name in files if not name.startswith(NOT_OF_A_CALL)}


def documented(heading: str) -> set[str]:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    section = page.split(f"### {heading}\n", 1)[1].split("\n#", 1)[0]
    return set(re.findall(r"`([a-z_/]+\.py)`", section))


def test_every_file_that_the_page_names_exists() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"`([a-z_/]+(?:\.py|/))`", page))
    assert "endpoints/calls.py" in named
    assert [name for name in sorted(named) if not (Path(SOURCES, name).exists() or (ROOT / name).exists())] == []


@pytest.mark.wire
@pytest.mark.parametrize(
    ("heading", "tool", "servers"),
    [("To a function", "does__echo", ()), ("To a server on stdio", "up__echo", (hostile(version=STATELESS),))],
)
async def test_the_path_of_a_call_is_as_documented(heading: str, tool: str, servers: Sequence[ServerSpec]) -> None:
    async with served(*servers) as url:
        # A call that meets a commit, a timer or a sleeping server passes more files: the shortest of some is the path.
        found = min([await traced(url, tool) for _ in range(5)], key=len)
    assert found == documented(heading)
    assert all(Path(SOURCES, name).exists() for name in found)


def test_the_classes_of_results_are_where_the_page_says() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    section = page.split("### The types of a result\n", 1)[1].split("\n#", 1)[0]
    classes = re.findall(r"`([A-Z]\w+)`(?: \| | \()`([a-z_/]+\.py)`", section)

    assert [name for name, _ in classes] == ["Result", "RawResult", "CheckedResult", "Answer", "CallResult"]
    assert [name for name, file in classes if f"\nclass {name}" not in Path(SOURCES, file).read_text()] == []
