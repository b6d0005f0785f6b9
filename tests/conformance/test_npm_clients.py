"""Clients of npm log in at the gateway's own authorization server, without a model; the person is a program.

`scripts/node-clients` puts them into `.venv/node-clients`; those that are not there are skipped.
"""

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.cli.terminal import Terminal, open_terminal
from tests.conformance.test_authorization_server import log_in
from tests.parts.authorization_server.conftest import Gateway, OpenGateway, open_gateway, quick_hashes

__all__ = ["open_gateway", "quick_hashes"]

PLACE = Path(__file__).parents[2] / ".venv" / "node-clients" / "node_modules"
LIMIT_S = 90

pytestmark = [pytest.mark.anyio, pytest.mark.wire, pytest.mark.soak, pytest.mark.timeout(300)]


@dataclass(frozen=True, kw_only=True)
class NpmClient:
    """How a client is told to log in, and how it shows that it has."""

    program: str
    log_in: Sequence[str]
    """The arguments of the login; `URL` stands for that of the endpoint."""
    done: str
    """What it prints when it is logged in."""
    use: Sequence[str] = ()
    """The arguments of a command that uses the login, if there is one."""
    used: str = ""
    """What that prints."""
    prepare: Callable[[Path, str], None] = lambda _folder, _url: None
    """Writes its configuration."""
    types: str = ""
    """What is typed once it asks for a message; Enter follows until it takes it."""


def prepare_opencode(folder: Path, url: str) -> None:
    server = {"type": "remote", "url": url, "enabled": True}
    (folder / "opencode.json").write_text(json.dumps({"autoupdate": False, "mcp": {"post": server}}))


def prepare_gemini(folder: Path, url: str) -> None:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "general": {"disableAutoUpdate": True, "disableUpdateNag": True},
        "privacy": {"usageStatisticsEnabled": False},
        "mcpServers": {"post": {"httpUrl": url}},
    }
    (folder / ".gemini").mkdir()
    (folder / ".gemini" / "settings.json").write_text(json.dumps(settings))


def prepare_claude(folder: Path, url: str) -> None:
    servers = {"post": {"type": "http", "url": url}}
    (folder / ".claude").mkdir()
    (folder / ".claude" / ".claude.json").write_text(json.dumps({"mcpServers": servers}))


CLIENTS = {
    "mcporter": NpmClient(
        program="mcporter",
        log_in=["--log-level", "info", "auth", "--http-url", "URL", "--allow-http", "--name", "post"],
        done="Authorization complete. 1 tool available",
        use=["call", "--http-url", "URL", "--allow-http", "--name", "post", "does__echo", "text=hello"],
        used="hello",
    ),
    "@anthropic-ai/claude-code": NpmClient(
        program="claude",
        log_in=["mcp", "login", "post"],
        done="Its tools are now available",
        use=["mcp", "list"],
        used="Connected",
        prepare=prepare_claude,
    ),
    "@google/gemini-cli": NpmClient(
        program="gemini",
        log_in=[],
        done="Successfully authenticated and reloaded tools",
        prepare=prepare_gemini,
        types="/mcp auth post",
    ),
    "opencode-ai": NpmClient(
        program="opencode",
        log_in=["mcp", "auth", "post"],
        done="Done",
        use=["mcp", "list"],
        used="connected",
        prepare=prepare_opencode,
    ),
}


def environment(folder: Path) -> dict[str, str]:
    """A home of its own, and a browser that opens nothing."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "BROWSER": "/bin/true",
        "CLAUDE_CONFIG_DIR": str(folder / ".claude"),
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "GEMINI_API_KEY": "not-a-key",
    }


def skip_without(package: str) -> None:
    if not (PLACE / package).exists():
        pytest.skip(f"{package} is not in {PLACE}: scripts/node-clients")


def follow_login(terminal: Terminal, gateway: Gateway, client: NpmClient) -> None:
    """Do what a person does: type what has to be typed, and log in at the address that is shown."""
    if client.types:
        terminal.wait_for("Type your message", within_s=LIMIT_S)
        terminal.type_until_shown(client.types)
    address = re.compile(rf"{re.escape(gateway.url)}/authorize\?[^\s\x1b\x07]+?resource=[^\s\x1b\x07&]+%2Fmcp")
    until, is_open = time.monotonic() + LIMIT_S, False
    while True:
        if client.types and not is_open:
            terminal.type("\r")
        with suppress(AssertionError):
            terminal.wait_for(client.done, within_s=2)
            return
        if not is_open and (found := address.search(terminal.text)):
            is_open = True
            anyio.from_thread.run(log_in, gateway, found[0])
        assert time.monotonic() < until, terminal.text[-3000:]


@pytest.mark.parametrize("package", CLIENTS)
async def test_a_client_of_npm_logs_in(package: str, open_gateway: OpenGateway, tmp_path: Path) -> None:
    skip_without(package)
    client, folder = CLIENTS[package], tmp_path / "client"
    folder.mkdir()
    program = str(PLACE / ".bin" / client.program)

    def run(gateway: Gateway) -> str:
        url = f"{gateway.url}/mcp"
        client.prepare(folder, url)
        where = {"cwd": folder, "env": environment(folder), "columns": 2000}
        commands = [
            [program, *(url if word == "URL" else word for word in words)] for words in (client.log_in, client.use)
        ]
        with open_terminal(commands[0], **where) as terminal:  # type: ignore[arg-type]
            follow_login(terminal, gateway, client)
        if not client.use:
            return ""
        with open_terminal(commands[1], **where) as terminal:  # type: ignore[arg-type]
            terminal.wait_for_end(within_s=LIMIT_S)
            return terminal.text

    # Without the internet the document that Claude Code is known by cannot be read: it registers then, as the others do.
    async with open_gateway("client_documents = false") as gateway:
        shown = await anyio.to_thread.run_sync(run, gateway)
        callers = {str(admission.caller.id) for admission in gateway.app.roster._verified.values()}

    assert client.used in shown
    assert callers == {"ada"}


async def test_mcp_remote_logs_in_and_passes_calls_on(open_gateway: OpenGateway, tmp_path: Path) -> None:
    skip_without("mcp-remote")
    folder, log = tmp_path / "client", tmp_path / "log"
    folder.mkdir()
    program = str(PLACE / ".bin" / "mcp-remote")
    async with open_gateway() as gateway, anyio.create_task_group() as tasks:

        async def follow() -> None:
            address = re.compile(rf"{re.escape(gateway.url)}/authorize\?\S+")
            while not (log.exists() and (found := address.search(log.read_text()))):
                await anyio.sleep(0.1)
            await log_in(gateway, found[0])

        tasks.start_soon(follow)
        started = StdioServerParameters(
            command=program, args=[f"{gateway.url}/mcp"], env=environment(folder), cwd=str(folder)
        )
        with log.open("w") as errors, anyio.fail_after(LIMIT_S):
            async with Client(stdio_client(started, errlog=errors)) as client:
                names = [tool.name for tool in (await client.list_tools()).tools]
                answer = await client.call_tool("does__echo", {"text": "hello"})
        callers = {str(admission.caller.id) for admission in gateway.app.roster._verified.values()}

    assert names == ["does__echo"]
    assert "hello" in str(answer.content)
    assert callers == {"ada"}
