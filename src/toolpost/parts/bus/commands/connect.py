"""`toolpost bus connect`: what an agent's MCP configuration starts. A server on stdio that forwards to the bus server."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import click

from toolpost.app import open_app, serve_on_stdio
from toolpost.cli.examples import examples
from toolpost.cli.gateway import run_async
from toolpost.cli.logs import LEVELS, set_up_logging
from toolpost.cli.options import is_debugging
from toolpost.cli.serve import Stop
from toolpost.cli.servers.client import MCP_PATH, base_url
from toolpost.cli.signals import on_signals
from toolpost.endpoints.stdio import StdioStreams
from toolpost.parts.bus.client import BusClient
from toolpost.parts.bus.commands.project import ProjectServer, load_project_config, project_of
from toolpost.parts.bus.connection import BusConnection, FindServer, ServerAddress
from toolpost.settings import Config, PluginSettings, StoreSettings

_CLIENT: Final = Config(
    # The server keeps the record; here is nothing to remember.
    store=StoreSettings(url="sqlite::memory:"),
    plugins=PluginSettings(only="bus", installed=False),
)


@click.command(
    epilog=examples(
        ("toolpost bus connect", "to the server of this project, started if none runs"),
        ("toolpost bus connect http://bus.example.org:8421/mcp", "to one elsewhere; TOOLPOST_TOKEN lets you in"),
    )
)
@click.argument("url", required=False)
@click.option(
    "--project",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The project whose bus it is (default: the one around this folder).",
)
@click.option(
    "--log-level", type=click.Choice(LEVELS), default="warning", show_default=True, help="Which events are shown."
)
def connect(url: str | None, project: Path | None, log_level: str) -> None:
    """Bring the bus to an agent, on stdin and stdout.

    Lists the tools that the server lists, and forwards their calls. Leases are kept by this process: it knows their tokens,
    renews them while it lives, and gives back what was not begun when it ends.
    """
    set_up_logging("debug" if is_debugging() else log_level, "text")
    find = _project_server(project) if url is None else _server_at(url)
    run_async(_connect, BusConnection(find), StdioStreams())


async def _connect(connection: BusConnection, wire: StdioStreams) -> None:
    stop = Stop()
    client = BusClient(connection)
    with on_signals(stop.request_stop):
        async with (
            client.open_running(),
            open_app(_CLIENT, plugins=[client.plugin()], bundled=False, servers=[]) as app,
        ):
            stop.app = app
            await serve_on_stdio(app, wire, stop.event)


def _project_server(project: Path | None) -> FindServer:
    root = project_of(Path.cwd()) if project is None else project.resolve()
    load_project_config(root)  # A fault in it is told now, not at the first call.
    return ProjectServer(root).find_or_start


def _server_at(url: str) -> Callable[[ServerAddress | None], Awaitable[ServerAddress]]:
    address = ServerAddress(url=f"{base_url(url)}{MCP_PATH}", token=os.environ.get("TOOLPOST_TOKEN"))

    async def find(_lost: ServerAddress | None) -> ServerAddress:
        return address

    return find
