"""A changed configuration is taken over while the gateway runs: as a whole, or not at all."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest

from tests.ways import IN_MEMORY, QUICK_WAYS, Way
from toolpost.app import open_app
from toolpost.config import Config, load_config
from toolpost.reload import follow_config, take_over

pytestmark = pytest.mark.anyio

SERVER = """
import asyncio, os
from mcp.server.mcpserver import MCPServer
server = MCPServer("s")
@server.tool()
async def pid() -> int:
    return os.getpid()
@server.tool()
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return os.environ.get("WORD", "none")
server.run("stdio")
"""


class Project:
    """A folder with a server and a configuration that changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "toolpost.toml"
        (folder / "server.py").write_text(SERVER)

    def write(self, *servers: str) -> None:
        """Write a server each: its name, and further settings on the lines after it."""
        command = f'command = "{sys.executable}"\nargs = ["{self.folder / "server.py"}"]\n'
        parts = [server.partition("\n") for server in servers]
        self.path.write_text("".join(f"[servers.{name}]\n{command}{settings}\n" for name, _, settings in parts))

    def load(self) -> Config:
        return msgspec.structs.replace(load_config(self.path), store=IN_MEMORY.store, http=IN_MEMORY.http)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


async def names(client: Any) -> list[str]:
    return [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]


async def until(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(10):
        while not is_so():
            await anyio.sleep(0.02)


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_each_kind_of_change_is_taken_over(way: Way, project: Project) -> None:
    project.write("one", "two")
    async with open_app(project.load(), bundled=False) as app, way.client_of(app) as client:
        first = (await client.call_tool("one__pid", {})).structured_content
        answers: list[Any] = []

        async def ask() -> None:
            answers.append((await client.call_tool("two__slow", {"seconds": 1.0})).structured_content)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await until(lambda: app.gateway.in_flight == 1)
            project.write('one\nallow = ["pid"]', "three")
            await take_over(app, project.load)
            await until(lambda: len(app.gateway.catalogue) == 3)
            listed = await names(client)
            same = (await client.call_tool("one__pid", {})).structured_content
        project.write('one\nenv = { WORD = "new" }', "three")
        await take_over(app, project.load)
        await until(lambda: len(app.gateway.catalogue) == 4)
        word = (await client.call_tool("one__slow", {"seconds": 0})).structured_content
        other = (await client.call_tool("one__pid", {})).structured_content
        servers = set(app.servers.sources)

    assert listed == ["one__pid", "three__pid", "three__slow"]
    assert answers == [{"result": "none"}], "the call on the removed server kept its answer"
    assert same == first, "a change of rules needs no restart"
    assert word == {"result": "new"}
    assert other != first
    assert servers == {"one", "three"}


@pytest.mark.parametrize(
    "change",
    [
        "[servers.one]\ncommand = 7\n",
        "[servers.one]\ncommnad = 'x'\n",
        "this is not TOML",
        "[servers.one]\ncommand = 'x'\nenv = { A = '${NOT_SET_ANYWHERE}' }\n",
        "[servers.two]\ncommand = 'no-such-command-anywhere'\n",
        None,
    ],
)
async def test_a_fault_leaves_everything_as_it_was(change: str | None, project: Project, caplog: Any) -> None:
    project.write("one")
    async with open_app(project.load(), bundled=False) as app:
        before = dict(app.servers.sources)
        if change is None:
            project.path.unlink()
        else:
            project.path.write_text(change)
        await take_over(app, project.load)

        assert app.servers.sources == before
        assert len(app.gateway.catalogue) == 2
        assert any("not taken over" in record.message for record in caplog.records)


async def test_the_file_is_watched_and_nothing_is_left_behind(project: Project) -> None:
    project.write("one", "two")
    async with open_app(project.load(), bundled=False) as app, anyio.create_task_group() as tasks:
        await app.servers.sources["two"].supervisor.ensure_ready()
        [pid] = app.servers.sources["two"].supervisor.report().pids
        tasks.start_soon(lambda: follow_config(app, project.path, project.load, look_s=0.05))
        await anyio.sleep(0.1)
        project.write("one")
        await until(lambda: set(app.servers.sources) == {"one"} and len(app.gateway.catalogue) == 2)
        await until(lambda: not psutil.pid_exists(pid))
        tasks.cancel_scope.cancel()
