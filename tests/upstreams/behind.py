"""Gateways with servers behind them, as the tests open them."""

import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp_types import CallToolResult, TextContent

from tests.loaded import start_loading
from tests.ways import IN_MEMORY, STATELESS, Way
from toolpost.app import App, open_app
from toolpost.settings import Config
from toolpost.upstreams.report import ServerReport
from toolpost.upstreams.spec import ServerSpec
from toolpost.upstreams.supervisor import Supervisor

SERVERS = Path(__file__).parent / "servers"
HOSTILE = SERVERS / "hostile.py"

ERAS = ["2025-11-25", STATELESS]
MEMORY = Way("memory", STATELESS)
ONE_OF_EACH = [Way("memory", "legacy"), Way("http", STATELESS)]
PAIRS = [
    (Way("memory", "legacy"), STATELESS),
    (Way("memory", STATELESS), "2025-11-25"),
    (Way("http", "legacy"), "2025-11-25"),
    (Way("http", STATELESS), STATELESS),
]
"""Every way in, and both eras behind it for each kind of transport and each era in front."""


def hostile(
    name: str = "up", *, version: str = "2025-11-25", start: str = "", log: Path | None = None, **options: Any
) -> ServerSpec:
    """Return a server on stdio that does what its tools and its start say."""
    command = [sys.executable, "-S", "-E", str(HOSTILE), "--version", version, "--start", start]
    return ServerSpec(name=name, command=(*command, "--log", str(log or "")), **options)


@asynccontextmanager
async def gateway(
    *specs: ServerSpec, way: Way = MEMORY, config: Config = IN_MEMORY, **options: Any
) -> AsyncIterator[tuple[App, Client]]:
    """Open a gateway with these servers behind it, and a client in front."""
    async with open_app(config, bundled=False, servers=specs, **options) as app, way.client_of(app) as client:
        yield app, client


_is_warm = False


async def warmed_up() -> None:
    """Load what is loaded once, so that it is not taken for something left open."""
    global _is_warm  # noqa: PLW0603
    if not _is_warm:
        _is_warm = True
        start_loading()
        async with gateway() as (_, client):
            await client.list_tools()
        async with gateway(way=Way("http", "legacy")) as (_, client):
            await client.list_tools()


def text_of(answer: CallToolResult) -> str:
    assert not answer.is_error, answer
    block = answer.content[0]
    assert isinstance(block, TextContent)
    return block.text


def report(app: App, name: str = "up") -> ServerReport:
    return app.servers.providers[name].supervisor.report()


def retry_in_s(supervisor: Supervisor) -> float:
    """Return the seconds until a server that failed may be started again; at most 0 if it may be now."""
    return supervisor._pool.backoff.wait_s


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


class Timed:
    """How long something took."""

    def __enter__(self) -> "Timed":
        self._began = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.took_s = time.monotonic() - self._began


async def beside(client: Client, neighbour: str, act: Callable[[], Awaitable[Any]]) -> Any:
    """Do something while another server's call is in flight; that one must be answered as if nothing happened."""
    answers: list[CallToolResult] = []

    async def call() -> None:
        answers.append(await client.call_tool(f"{neighbour}__sleep", {"seconds": 0.2}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        result = await act()
    assert text_of(answers[0]) == "slept"
    return result
