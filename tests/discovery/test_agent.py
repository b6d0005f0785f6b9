"""An agent at work, with real servers behind the gateway: it searches, calls wrongly, reads the refusal, calls again."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from tests.discovery.asking import ask, names_of, text_of
from tests.loaded import loaded_toml, loaded_toolpost
from tests.plugins.office import OFFICE
from tests.ways import ROOT, STATELESS, server_environment

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

BIN = Path(sys.executable).parent


class Agent:
    """A model in miniature: it knows its task and some facts, and everything about tools from what it is told."""

    def __init__(self, client: Client, facts: dict[str, Any]) -> None:
        self._client = client
        self._facts = facts
        self.refusals: list[dict[str, Any]] = []

    async def do(self, task: str) -> str:
        found = await ask(self._client, task, sessionId="agent")
        # What it was sent for an earlier task is named, and still in its context.
        tool = self._best(task, [*(definition["name"] for definition in found["tools"]), *found["known"]])
        answer = await self._run(tool, {"please": task})
        while answer.is_error and len(self.refusals) < 5:
            self.refusals.append(json.loads(text_of(answer)))
            answer = await self._run(tool, self._mended(self.refusals[-1]))
        assert not answer.is_error, answer
        return text_of(answer)

    def _best(self, task: str, names: list[str]) -> str:
        """Choose, as a model would, by what the names say."""
        return max(names, key=lambda name: len(set(name.replace("__", "_").split("_")) & set(task.split())))

    def _mended(self, refusal: dict[str, Any]) -> dict[str, Any]:
        """Take the schema out of the refusal, and fill in what is known."""
        assert refusal["error"].startswith("invalid tool arguments: ")
        schema = refusal["toolSchema"]["inputSchema"]
        return {name: self._facts[name] for name in schema["required"]}

    async def _run(self, tool: str, arguments: dict[str, Any]) -> Any:
        return await self._client.call_tool("automatic_eval", {"toolName": tool, "arguments": arguments})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with two real servers, four plugins, and a repository to ask about."""
    repository = tmp_path / "repository"
    git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    subprocess.run([*git, "init", "-q", str(repository)], check=True)
    (repository / "notes.txt").write_text("hello")
    subprocess.run([*git, "-C", str(repository), "add", "."], check=True)
    subprocess.run([*git, "-C", str(repository), "commit", "-qm", "The first thing that was done"], check=True)
    plugins = json.dumps(list(OFFICE))
    (tmp_path / "toolpost.toml").write_text(
        f"""
[discovery]
mode = "automatic"
[plugins]
load = {plugins}
[servers.git]
{loaded_toml(str(BIN / "mcp-server-git"))}
[servers.clock]
{loaded_toml(str(BIN / "mcp-server-time"), "--local-timezone", "UTC")}
"""
    )
    return tmp_path


@asynccontextmanager
async def connected(transport: str, mode: str, folder: Path) -> AsyncIterator[Client]:
    environment = server_environment() | {"PYTHONPATH": str(ROOT), "HOME": str(folder)}
    if transport == "stdio":
        command, *arguments = loaded_toolpost("serve", "--stdio")
        parameters = StdioServerParameters(command=command, args=arguments, env=environment, cwd=str(folder))
        async with Client(parameters, mode=mode) as client:
            yield client
        return
    served = loaded_toolpost("serve", "--listen", "127.0.0.1:0", "--json")
    with subprocess.Popen(served, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as it:
        try:
            assert it.stdout is not None
            url = json.loads(it.stdout.readline())["url"]
            async with Client(url, mode=mode) as client:
                yield client
        finally:
            it.terminate()


async def everything_is_there(client: Client) -> None:
    """Wait until both servers have started: on a busy machine that may take longer than the gateway waits for them."""
    with anyio.fail_after(60):
        for name in ("git__git_log", "clock__convert_time"):
            while name not in names_of(await ask(client, name, sessionId="waiting", forceRefresh=True)):
                await anyio.sleep(0.2)


@pytest.mark.parametrize("mode", ["legacy", STATELESS])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_an_agent_finds_a_tool_mends_its_call_and_succeeds(transport: str, mode: str, folder: Path) -> None:
    facts = {"repo_path": str(folder / "repository"), "source_timezone": "UTC", "time": "12:00"}
    facts |= {"target_timezone": "Asia/Tokyo", "page_id": "7"}
    async with connected(transport, mode, folder) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        await everything_is_there(client)
        agent = Agent(client, facts)
        history = await agent.do("show the commit log of a git repository")
        clock = await agent.do("convert a time between timezones with the clock server")
        page = await agent.do("delete a wiki page")

    assert listed == ["automatic_eval", "automatic_mcp"]
    assert "The first thing that was done" in history
    assert "21:00" in clock
    assert '"did":"delete page"' in page
    assert len(agent.refusals) == 3
    assert [refusal["toolSchema"]["name"] for refusal in agent.refusals] == [
        "git__git_log",
        "clock__convert_time",
        "wiki__delete_page",
    ]
