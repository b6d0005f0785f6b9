"""A server that does not start is named, with what happened and what to do; the others are listed; the exit code says so."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.loaded import loaded_toolpost
from tests.ways import server_environment

pytestmark = pytest.mark.wire

SMALL = Path(__file__).parent / "servers" / "small.py"
FINE = {"command": sys.executable, "args": ["-S", "-E", str(SMALL), "fine"]}


MINE = '''
from toolpost import Plugin

plugin = Plugin("mine")


@plugin.tool
def add() -> int:
    """Add them."""
    return 3
'''


def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


FAILED: dict[str, tuple[dict[str, Any], str, str]] = {
    "missing": ({"command": "no-such-program-anywhere"}, "cannot be started", "install it"),
    "refused": ({"url": f"http://127.0.0.1:{closed_port()}/mcp"}, "cannot connect", "check the host and port"),
    "nowhere": ({"url": "http://no-such-host.invalid/mcp"}, "cannot connect", "online"),
    "crashed": ({"command": "sh", "args": ["-c", "echo no key >&2; exit 3"]}, "no key", "toolpost doctor crashed"),
}


def toolpost(folder: Path, servers: dict[str, Any], *words: str) -> "subprocess.CompletedProcess[str]":
    (folder / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    command = loaded_toolpost(words[0], "--config", "servers.json", *words[1:])
    return subprocess.run(
        command, cwd=folder, env=server_environment(), capture_output=True, text=True, timeout=60, check=False
    )


def test_each_failed_server_is_named_and_the_others_are_listed(tmp_path: Path) -> None:
    done = toolpost(tmp_path, {"fine": FINE} | {name: entry for name, (entry, _, _) in FAILED.items()}, "tools")

    assert done.returncode == 1
    assert "fine__echo" in done.stdout
    lines = done.stderr.splitlines()
    for name, (_, reason, hint) in FAILED.items():
        (line,) = [line for line in lines if f"`{name}`" in line]
        assert reason in line, line
        assert hint in line, line


@pytest.mark.parametrize("words", [("tools", "--json"), ("tools", "--find", "echo a text")])
def test_other_commands_say_so_too(words: tuple[str, ...], tmp_path: Path) -> None:
    done = toolpost(tmp_path, {"fine": FINE, "missing": FAILED["missing"][0]}, *words)

    assert done.returncode == 1
    assert "`missing`" in done.stderr
    assert "fine__echo" in done.stdout


def test_a_call_of_a_failed_servers_tool_says_why(tmp_path: Path) -> None:
    servers = {"fine": FINE, "missing": FAILED["missing"][0]}
    lost = toolpost(tmp_path, servers, "call", "missing__echo")
    fine = toolpost(tmp_path, servers, "call", "fine__echo", "text=x")

    assert lost.returncode == 1
    assert "no-such-program-anywhere" in lost.stderr.splitlines()[-1] + lost.stderr.splitlines()[-2]
    assert fine.returncode == 0
    assert "x" in fine.stdout


def test_whoever_waits_is_told_for_what(tmp_path: Path) -> None:
    slow = {"command": "sh", "args": ["-c", "sleep 2.5; exit 1"]}
    done = toolpost(tmp_path, {"fine": FINE, "slow": slow}, "tools")

    assert "waiting for slow to start" in done.stderr


@pytest.mark.parametrize(
    ("words", "started"),
    [
        (("call", "fine__echo", "text=x"), {"fine"}),
        (("tools", "fine__echo"), {"fine"}),
        (("call", "mine__add", "--plugin", "mine:plugin"), set()),
        (("tools", "mine__ad", "--plugin", "mine:plugin"), set()),
        (("call", "echo"), {"fine", "other"}),
        (("tools",), {"fine", "other"}),
    ],
)
def test_only_servers_that_a_command_needs_are_started(
    words: tuple[str, ...], started: set[str], tmp_path: Path
) -> None:
    servers = {
        name: {"command": "sh", "args": ["-c", f'touch {name}.started; exec "{sys.executable}" -S -E "{SMALL}" fine']}
        for name in ("fine", "other")
    }
    (tmp_path / "mine.py").write_text(MINE)
    done = toolpost(tmp_path, servers, *words)

    assert {path.stem for path in tmp_path.glob("*.started")} == started, done.stderr


def test_a_server_of_a_group_is_started_with_the_others(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(
        f"""[servers.one]
command = "{sys.executable}"
args = ["-S", "-E", "{SMALL}", "fine"]

[servers.two]
command = "{sys.executable}"
args = ["-S", "-E", "{SMALL}", "fine"]

[groups.both]
servers = ["one", "two"]
"""
    )
    done = subprocess.run(
        loaded_toolpost("call", "both__echo", "text=x"),
        cwd=tmp_path,
        env=server_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
