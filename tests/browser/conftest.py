"""A browser, and a gateway with an agent for it to talk to."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.cli.conftest import open_process
from tests.loaded import loaded_toolpost
from toolpost.parts.agents.testing import acp_agent_command
from toolpost.parts.console.gateway_id import port_of, read_gateway_id
from toolpost.parts.console.sessions import ConsoleSessions
from toolpost.settings import load_config
from toolpost.store import open_store

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

EXPECTED = ("Failed to load resource", "TrustedHTML")
"""A browser notes every answer that is not a success, and what it was kept from doing."""

SERVES = re.compile("serves .* at (http://.*)/mcp ")

FOLDERS: dict[str, Path] = {}
"""The folders of gateways that are open, by their addresses."""

expect.set_options(timeout=60_000)  # a machine that does much else is slow, and not wrong


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Open a browser; it is closed with its file, since while it is open no other event loop can run in this thread."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed: `apt-get install chromium` brings one")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Open a tab of its own, which must not complain about anything."""
    context = browser.new_context(viewport={"width": 1100, "height": 760})
    context.set_default_timeout(60_000)
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    yield opened
    context.close()
    assert [complaint for complaint in complaints if not any(part in complaint for part in EXPECTED)] == []


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return where the chat page of a gateway is that knows nobody and lets everybody in."""
    with _served(tmp_path_factory.mktemp("open"), {}) as (url, _):
        yield url


@pytest.fixture(scope="module")
def guarded_chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return where the chat page of a gateway is that asks for a token."""
    with _served(tmp_path_factory.mktemp("guarded"), {"TOOLPOST_TOKEN": "the-right-token-of-32-characters"}) as (
        url,
        _,
    ):
        yield url


@pytest.fixture
def doomed_chat(tmp_path: Path) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Return where the chat page of a gateway is that may be killed, and the gateway."""
    with _served(tmp_path, {}) as served:
        yield served


@pytest.fixture
def agentless_chat(tmp_path: Path) -> Iterator[str]:
    """Return where the chat page of a gateway is that has no agent."""
    with _served(tmp_path, {}, has_agent=False) as (url, _):
        yield url


@contextmanager
def open_console(folder: Path, *options: str, **environment: str) -> Iterator[str]:
    """Serve what `toolpost.toml` in the folder says; yields the address of the console, with its secret."""
    serve = ("serve", "--listen", "127.0.0.1:0", "--log-level", "error", *options)
    given = os.environ | environment
    with open_process(serve, folder, given) as process:
        assert process.stderr is not None
        found = next((served[1] for line in process.stderr if (served := SERVES.search(line))), None)
        assert found is not None, "the gateway ended"
        # The secret is printed on terminals alone.
        command = loaded_toolpost("console", "--no-browser", "--url", found)
        yield subprocess.run(
            command, cwd=folder, env=given, stdout=subprocess.PIPE, text=True, check=True
        ).stdout.strip()


def let_in(page: Page, address: str) -> None:
    """Do what opening an address with a secret does: this browser may change something at the gateway from now on."""
    url = address.removesuffix("/chat")
    secret = new_secret(FOLDERS[url], url)
    answer = httpx2.post(f"{url}/api/console/session", json={"secret": secret}, headers={"X-Toolpost": "1"})
    (cookie,) = answer.cookies.jar
    page.context.add_cookies(
        [
            {
                "name": cookie.name,
                "value": cookie.value or "",
                "domain": "127.0.0.1",
                "path": cookie.path,
                "httpOnly": True,
            }
        ]
    )
    page.add_init_script(
        f"localStorage.setItem('toolpost.sessionSecret', {json.dumps(answer.json()['sessionSecret'])})"
    )


def new_secret(folder: Path, url: str) -> str:
    """Do what `toolpost console` does: make another secret for the gateway of the folder."""
    config = load_config(folder / "toolpost.toml")

    async def issue() -> str:
        async with open_store(config.store_url) as store:
            return await ConsoleSessions(store, read_gateway_id(config)).issue(port_of(url))

    with ThreadPoolExecutor(1) as pool:  # Playwright has an event loop in this thread
        return pool.submit(anyio.run, issue).result()


@contextmanager
def _served(
    folder: Path, environment: dict[str, str], *, has_agent: bool = True
) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    command, *args = acp_agent_command()
    agent = f'[agents.script]\ncommand = "{command}"\nargs = {json.dumps(args)}\n' if has_agent else ""
    (folder / "toolpost.toml").write_text(f'{agent}[plugins]\nbundled = ["time"]\n')
    serve = ("serve", "--listen", "127.0.0.1:0", "--json")
    with open_process(serve, folder, os.environ | environment) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"].removesuffix("/mcp")
        FOLDERS[url] = folder
        yield f"{url}/chat", process
