"""From a client's servers to a gateway in that client, with two commands: started from anywhere, with a bare environment."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp import Client, StdioServerParameters

from tests.cli.conftest import Run
from tests.loaded import loaded_toolpost
from tests.ways import IN_MEMORY, STATELESS, server_environment
from toolpost.app import open_app
from toolpost.contracts.errors import CapabilityMissing
from toolpost.parts.agents.agents import LazyAgent
from toolpost.parts.agents.settings import AgentSettings
from toolpost.parts.bus.commands.project import ProjectServer, load_project_config
from toolpost.settings.locations import state_folder
from toolpost.testing import conversations_of

SMALL = Path(__file__).parent / "servers" / "small.py"
FINE = {"command": sys.executable, "args": ["-S", "-E", str(SMALL), "fine"]}
SECRET = FINE | {"env": {"API_TOKEN": "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB"}}

FILES = {
    "claude-desktop": ("home/.config/Claude/claude_desktop_config.json", "mcpServers"),
    "claude-code": (".mcp.json", "mcpServers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "vscode": (".vscode/mcp.json", "servers"),
}


def home_of(folder: Path) -> dict[str, str]:
    """Say where somebody's files are who has nothing yet."""
    (folder / "home").mkdir(exist_ok=True)
    return {"HOME": str(folder / "home"), "XDG_CONFIG_HOME": "", "CLAUDE_CONFIG_DIR": "", "XDG_DATA_HOME": ""}


def write_servers(path: Path, key: str, servers: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({key: servers}))


def started_by_a_client(entry: Mapping[str, Any], folder: Path) -> StdioServerParameters:
    """Start an entry as a client with an environment of its own does: from `/`, with hardly a variable."""
    return StdioServerParameters(
        command=entry["command"],
        args=entry["args"],
        env={"HOME": str(folder / "home"), "PATH": "/usr/bin:/bin"} | entry.get("env", {}),
        cwd="/",
    )


@pytest.mark.wire
@pytest.mark.anyio
@pytest.mark.parametrize("client", FILES)
async def test_import_and_install_make_a_gateway_that_works_from_anywhere(
    client: str, invoke: Run, tmp_path: Path
) -> None:
    file, key = tmp_path / FILES[client][0], FILES[client][1]
    write_servers(file, key, {"fine": FINE, "closed": SECRET})
    imported = invoke("import", **home_of(tmp_path))
    installed = invoke("install", client, **home_of(tmp_path))
    entry = json.loads(file.read_text())[key]["toolpost"]

    assert (imported.code, installed.code) == (0, 0), imported.err + installed.err
    assert Path(entry["command"]).is_absolute()
    assert entry["args"] == ["serve", "--stdio", "--config", str(tmp_path / "toolpost.toml")]
    assert "API_TOKEN" in imported.err
    assert "warning: API_TOKEN is not set by" in installed.err
    assert "and servers.closed.env.API_TOKEN needs it" in installed.err
    async with Client(started_by_a_client(entry, tmp_path), mode=STATELESS) as served:
        listed = {tool.name for tool in (await served.list_tools()).tools}
        called = await served.call_tool("fine__echo", {"text": "hello"})
    assert {name for name in listed if not name.startswith(("bus", "time", "trail", "workspace"))} == {"fine__echo"}
    assert called.structured_content == {"text": "hello"}
    assert (tmp_path / ".toolpost" / ".gitignore").read_text() == "*\n"
    assert not Path("/.toolpost").exists()


@pytest.mark.wire
@pytest.mark.anyio
async def test_variable_in_the_entry_is_kept_and_brings_the_server_back(invoke: Run, tmp_path: Path) -> None:
    file = tmp_path / ".cursor/mcp.json"
    write_servers(file, "mcpServers", {"closed": SECRET})
    invoke("import", **home_of(tmp_path))
    first = invoke("install", "cursor", "--json", **home_of(tmp_path)).json
    held = json.loads(file.read_text())
    held["mcpServers"]["toolpost"]["env"] = {"API_TOKEN": "t"}
    file.write_text(json.dumps(held))
    again = invoke("install", "cursor", "--json", **home_of(tmp_path)).json

    assert (first["variables"], again["variables"], again["change"]) == (["API_TOKEN"], [], "none")
    async with Client(started_by_a_client(again["entry"], tmp_path), mode=STATELESS) as served:
        assert "closed__echo" in {tool.name for tool in (await served.list_tools()).tools}


def test_client_that_hands_on_its_environment_is_not_warned_of(invoke: Run, tmp_path: Path) -> None:
    write_servers(tmp_path / ".mcp.json", "mcpServers", {"closed": SECRET, "home": FINE | {"env": {"A": "${HOME}"}}})
    invoke("import", **home_of(tmp_path))
    given = home_of(tmp_path) | {"API_TOKEN": "t"}

    assert "is not set by" not in invoke("install", "claude-code", **given).err
    warned = invoke("install", "claude-desktop", **given).err
    assert "API_TOKEN is not set by Claude Desktop" in warned
    assert "HOME will" not in warned


def test_whoever_installs_without_a_configuration_is_told(invoke: Run, tmp_path: Path) -> None:
    ended = invoke("install", "claude-code", **home_of(tmp_path))

    assert ended.code == 0
    assert "there is no toolpost.toml here" in ended.err
    assert "toolpost import" in ended.err


@pytest.mark.parametrize("words", [("tools",), ("tools", "--find", "time"), ("lock",), ("call", "maps__find")])
def test_a_client_file_that_is_not_used_is_mentioned(words: tuple[str, ...], invoke: Run, tmp_path: Path) -> None:
    path = tmp_path / ".mcp.json"
    path.write_text('{"mcpServers": {"maps": {"command": "not-started"}}}')
    ended = invoke(*words)
    path.write_text('{"mcpServers": {"toolpost": {"command": "toolpost", "args": ["serve", "--stdio"]}}}')
    own_entry_alone = invoke(*words)
    path.write_text('{"mcpServers": {"maps": {"command": "not-started"}}}')
    (tmp_path / "toolpost.toml").write_text("")
    configured = invoke(*words)

    assert ".mcp.json is here, and its servers are not used: `--config .mcp.json` uses them" in ended.err
    assert ".mcp.json" not in own_entry_alone.err + configured.err


def test_a_tool_of_a_bundled_plugin_that_is_not_loaded_names_it(invoke: Run) -> None:
    ended = invoke("call", "approvals__vrf_eval", "input_hex=72")

    assert ended.code == 2
    assert "unknown tool `approvals__vrf_eval`" in ended.err
    assert "the plugin `approvals` comes with Toolpost: --with approvals" in ended.err


@pytest.mark.wire
def test_unset_variable_disables_its_own_server_alone(tmp_path: Path) -> None:
    servers = {"fine": FINE, "closed": FINE | {"env": {"A": "${NOT_SET_HERE}"}}}
    (tmp_path / "c.json").write_text(json.dumps({"mcpServers": servers}))

    def toolpost(*words: str) -> "subprocess.CompletedProcess[str]":
        command, environment = loaded_toolpost(*words, "--config", "c.json"), server_environment()
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    listed, called = toolpost("tools"), toolpost("call", "closed__echo")

    assert (listed.returncode, called.returncode) == (1, 1)
    assert "fine__echo" in listed.stdout
    assert "`closed` has no tools: servers.closed.env.A: the environment variable NOT_SET_HERE" in listed.stderr
    assert "set it before starting Toolpost" in listed.stderr
    assert "NOT_SET_HERE is not set" in called.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.json"]


@pytest.mark.anyio
async def test_unset_variable_of_an_agent_keeps_no_tool_away() -> None:
    agent = AgentSettings(command="agent", env={"KEY": "${NOT_SET_HERE}"})
    config = msgspec.structs.replace(IN_MEMORY, parts={"agents": {"helper": agent}})
    async with open_app(config) as app:
        assert len(app.gateway.catalog) > 0
        with pytest.raises(CapabilityMissing, match="NOT_SET_HERE is not set"):
            await LazyAgent(conversations_of(app).agents.agents["helper"].spec).load()


def test_bus_of_a_folder_that_is_no_project_leaves_nothing_there(tmp_path: Path) -> None:
    repository, plain = tmp_path / "repository", tmp_path / "plain"
    (repository / ".git").mkdir(parents=True)
    plain.mkdir()

    assert load_project_config(repository).store_url == f"sqlite:{repository}/.toolpost/toolpost.db"
    assert load_project_config(plain).store_url == f"sqlite:{state_folder(plain)}/toolpost.db"
    assert ProjectServer(plain).find_running() is None
    assert list(plain.iterdir()) == []
