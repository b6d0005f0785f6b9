"""A changed configuration is taken over while the gateway runs: as a whole, or not at all."""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest

from tests.loaded import loaded_toml
from tests.upstreams.behind import HOSTILE, text_of
from tests.waiting import until
from tests.ways import IN_MEMORY, QUICK_WAYS, Way
from toolpost.app import App, open_app
from toolpost.app.reload import apply_config, follow_config
from toolpost.settings import Config, load_config

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

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
        command = loaded_toml(str(self.folder / "server.py"))
        parts = [server.partition("\n") for server in servers]
        self.path.write_text("".join(f"[servers.{name}]\n{command}{settings}\n" for name, _, settings in parts))

    def load(self) -> Config:
        return msgspec.structs.replace(load_config(self.path), store=IN_MEMORY.store, http=IN_MEMORY.http)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


async def names(client: Any) -> list[str]:
    return [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]


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
            await apply_config(app, project.load)
            await until(lambda: len(app.gateway.catalog) == 3)
            listed = await names(client)
            same = (await client.call_tool("one__pid", {})).structured_content
        project.write('one\nenv = { WORD = "new" }', "three")
        await apply_config(app, project.load)
        await until(lambda: len(app.gateway.catalog) == 4)
        word = (await client.call_tool("one__slow", {"seconds": 0})).structured_content
        other = (await client.call_tool("one__pid", {})).structured_content
        servers = set(app.servers.providers)

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
        before = dict(app.servers.providers)
        if change is None:
            project.path.unlink()
        else:
            project.path.write_text(change)
        await apply_config(app, project.load)

        assert app.servers.providers == before
        assert len(app.gateway.catalog) == 2
        assert any("not applied" in record.message for record in caplog.records)


async def test_the_file_is_watched_and_nothing_is_left_behind(project: Project) -> None:
    project.write("one", "two")
    async with open_app(project.load(), bundled=False) as app, anyio.create_task_group() as tasks:
        await app.servers.providers["two"].supervisor.ensure_ready()
        [pid] = app.servers.providers["two"].supervisor.report().pids
        tasks.start_soon(lambda: follow_config(app, project.path, project.load, look_s=0.05))
        project.write("one")
        await until(lambda: set(app.servers.providers) == {"one"} and len(app.gateway.catalog) == 2)
        await until(lambda: not psutil.pid_exists(pid))
        tasks.cancel_scope.cancel()


# What editors and people do to a file


@pytest.fixture
def quick(tmp_path: Path) -> Project:
    """Return a folder with a server that starts at once."""
    project = Project(tmp_path)
    shutil.copy(HOSTILE, tmp_path / "server.py")
    return project


def followed(app: App, quick: Project, settle_s: float = 0.1) -> Callable[[], Any]:
    return lambda: follow_config(app, quick.path, quick.load, look_s=0.05, settle_s=settle_s)


async def test_a_file_that_is_being_written_is_not_read_before_it_is_whole(quick: Project, caplog: Any) -> None:
    quick.write("one", "two")
    whole = quick.path.read_text()
    async with open_app(quick.load(), bundled=False) as app, anyio.create_task_group() as tasks:
        before = dict(app.servers.providers)
        tasks.start_soon(followed(app, quick, settle_s=3))
        # Emptied first, then written bit by bit: what is there in between is TOML too, of fewer servers.
        for end in (0, *range(0, len(whole), len(whole) // 20), len(whole)):
            quick.path.write_text(whole[:end])
            await anyio.sleep(0.04)
        # What comes after is the first that is read.
        quick.write("one", "two", "three")
        await until(lambda: "three" in app.servers.providers)
        after = dict(app.servers.providers)
        tasks.cancel_scope.cancel()

    del after["three"]
    assert after == before
    assert not any("applied" in record.message for record in caplog.records)


async def test_what_was_changed_while_servers_started_is_taken_over(quick: Project) -> None:
    quick.write("one")
    async with open_app(quick.load(), bundled=False) as app, anyio.create_task_group() as tasks:
        quick.write("one", "two")
        tasks.start_soon(followed(app, quick))
        await until(lambda: set(app.servers.providers) == {"one", "two"})
        tasks.cancel_scope.cancel()


async def test_editors_that_replace_or_remove_the_file_are_followed(quick: Project, caplog: Any) -> None:
    quick.write("one")
    async with open_app(quick.load(), bundled=False) as app, anyio.create_task_group() as tasks:
        tasks.start_soon(followed(app, quick))
        await anyio.sleep(0)  # it has seen the file
        quick.path.rename(quick.folder / "toolpost.toml~")
        await until(lambda: any("is missing" in record.message for record in caplog.records))
        kept = set(app.servers.providers)
        quick.write("one", "two")
        await until(lambda: set(app.servers.providers) == {"one", "two"})
        quick.write("one", "three")
        quick.path.rename(quick.folder / "new")
        quick.write("one", "two")
        (quick.folder / "new").replace(quick.path)
        await until(lambda: set(app.servers.providers) == {"one", "three"})
        tasks.cancel_scope.cancel()

    assert kept == {"one"}, "a file that is gone is no configuration without servers"


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_fifty_changes_in_a_second_harm_no_call(way: Way, quick: Project) -> None:
    quick.write("one")
    async with open_app(quick.load(), bundled=False) as app, way.client_of(app) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(followed(app, quick))
            async with calling(client, "one__pid") as answers:
                for number in range(50):
                    quick.write(f'one\ntags = ["t{number}"]', *(["two"] if number % 2 else []))
                    await anyio.sleep(0.02)
                quick.write('one\ntags = ["last"]', "two")
                await until(lambda: set(app.servers.providers) == {"one", "two"})
                await until(lambda: app.servers.providers["one"].spec.tags == {"last"})
            tasks.cancel_scope.cancel()

    assert len(answers) > 10
    assert len(set(answers)) == 1, "one process answered all of them"


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_server_that_is_replaced_answers_every_call(way: Way, quick: Project) -> None:
    quick.write("one")
    async with open_app(quick.load(), bundled=False) as app, way.client_of(app) as client:
        async with calling(client, "one__pid") as answers:
            await until(lambda: bool(answers))
            for word in ("a", "b", "c"):
                before = len(set(answers))
                quick.write(f'one\nenv = {{ WORD = "{word}" }}')
                await apply_config(app, quick.load)
                await until(partial(_has_more, answers, before))

    assert len(set(answers)) == 4, "each of them answered"


def _has_more(answers: list[str], before: int) -> bool:
    return len(set(answers)) > before


def names_of_children() -> set[str]:
    names = set()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # It ended after it was listed.
            names.add(child.name())
    return names


async def test_a_server_that_hangs_keeps_no_better_configuration_waiting(quick: Project) -> None:
    quick.write("one")
    async with open_app(quick.load(), bundled=False) as app, anyio.create_task_group() as tasks:
        tasks.start_soon(followed(app, quick))
        quick.path.write_text('[servers.one]\ncommand = "sleep"\nargs = ["600"]\n')
        await until(lambda: "sleep" in names_of_children())
        quick.write("one", "two")
        await until(lambda: set(app.servers.providers) == {"one", "two"})
        await until(lambda: "sleep" not in names_of_children())
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def calling(client: Any, tool: str, **arguments: Any) -> AsyncIterator[list[str]]:
    """Call all the time, two at once; every answer must be a good one."""
    answers: list[str] = []
    is_over = anyio.Event()

    async def call() -> None:
        while not is_over.is_set():
            answer = await client.call_tool(tool, arguments)
            answers.append(text_of(answer))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        tasks.start_soon(call)
        yield answers
        is_over.set()
