"""`toolpost bus connect`: an MCP server on stdio that forwards to a bus server. An agent's MCP configuration starts it."""

import os
from pathlib import Path
from typing import Final

import click

from toolpost.app import StdioStreams, open_app, serve_on_stdio
from toolpost.cli import Stop
from toolpost.parts.bus.client import BusClient
from toolpost.parts.bus.commands.project import ProjectServer, load_project_config
from toolpost.parts.bus.commands.server import project_option, resolve_project
from toolpost.parts.bus.connection import BusConnection, ServerAddress
from toolpost.settings import Config, PluginSettings, StoreSettings
from toolpost.terminal import LEVELS, MCP_PATH, base_url, examples, is_debugging, on_signals, run_async, set_up_logging

_CLIENT: Final = Config(
    # The bus server has the store and the audit: this process stores nothing.
    store=StoreSettings(url="sqlite::memory:"),
    plugins=PluginSettings(only="bus", installed=False),
)


@click.command(
    epilog=examples(
        ("toolpost bus connect", "to the server of this project, started if none runs"),
        ("toolpost bus connect http://bus.example.org:8421/mcp", "to another server; TOOLPOST_TOKEN has its token"),
    )
)
@click.argument("url", required=False)
@project_option
@click.option(
    "--log-level", type=click.Choice(LEVELS), default="warning", show_default=True, help="Which events are shown."
)
def connect(url: str | None, project: Path | None, log_level: str) -> None:
    """Connect an agent to the bus, on stdin and stdout.

    Lists the tools of the bus, and forwards their calls to the server. This process keeps the lease tokens and renews leases
    while it lives; when it ends, tasks that were not started are queued again.
    """
    set_up_logging("debug" if is_debugging() else log_level, "text")
    root = resolve_project(project)
    # Also checks the configuration: what is wrong with it is raised now, not at the first call.
    network = load_project_config(root).resolve_network()

    async def find(lost: ServerAddress | None) -> ServerAddress:
        if url is None:
            return await ProjectServer(root).find_or_start(lost)
        return ServerAddress(url=f"{base_url(url)}{MCP_PATH}", token=os.environ.get("TOOLPOST_TOKEN"))

    run_async(_connect, BusConnection(find, network), StdioStreams())


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
