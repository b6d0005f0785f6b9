"""`toolpost bus connect`: an MCP server on stdio that forwards to a bus server. An agent's MCP configuration starts it."""

import os
from pathlib import Path

import click

from toolpost.cli import serve_plugin
from toolpost.parts.bus.client import BusClient
from toolpost.parts.bus.commands.project import ProjectServer, load_project_config
from toolpost.parts.bus.commands.server import project_option, resolve_project
from toolpost.parts.bus.connection import BusConnection, ServerAddress
from toolpost.terminal import RunningGateway, examples, log_level_option


@click.command(
    epilog=examples(
        ("toolpost bus connect", "to the server of this project, started if none runs"),
        ("toolpost bus connect http://bus.example.org:8421/mcp", "to another server; TOOLPOST_TOKEN has its token"),
    )
)
@click.argument("url", required=False)
@project_option
@log_level_option("warning")
def connect(url: str | None, project: Path | None, log_level: str) -> None:
    """Connect an agent to the bus, on stdin and stdout.

    Lists the tools of the bus, and forwards their calls to the server. This process keeps the lease tokens and renews leases
    while it lives; when it ends, tasks that were not started are queued again.
    """
    root = resolve_project(project)
    # Also checks the configuration: what is wrong with it is raised now, not at the first call.
    network = load_project_config(root).resolve_network()

    async def find(lost: ServerAddress | None) -> ServerAddress:
        if url is None:
            return await ProjectServer(root).find_or_start(lost)
        return ServerAddress(url=RunningGateway.at(url).mcp_url, token=os.environ.get("TOOLPOST_TOKEN"))

    client = BusClient(BusConnection(find, network))
    # The bus server has the store and the audit: this process stores nothing.
    serve_plugin(client.plugin(), log_level=log_level, while_serving=client.open_running())
