"""`toolpost bus serve`: a gateway with the tools of the bus alone, under their bare names, which clients of the project find."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import click

from toolpost.cli import ServedGateway, ServeOptions, serve_options
from toolpost.parts.bus.commands.project import ProjectServer, RunningServer, load_project_config
from toolpost.parts.bus.commands.server import project_option, resolve_project
from toolpost.processes import Daemon
from toolpost.settings import CONFIG_NAME, Config
from toolpost.terminal import apply_options, examples, warn

_FREE_PORT: Final = "127.0.0.1:0"
IDLE_S: Final = 3_600.0
"""How long a server that `bus connect` started goes on without a call."""
_CHECK_S: Final = 10.0
"""How often a server checks whether it is still used."""


@click.command(
    epilog=examples(
        ("toolpost bus serve", "on http.listen"),
        ("toolpost bus serve --listen 0.0.0.0:8421", "with TOOLPOST_TOKEN, for others"),
        ("toolpost bus serve --stdio", "for one client that starts it"),
    )
)
@serve_options
@project_option
@click.option("--for-clients", is_flag=True, hidden=True)
def serve(options: ServeOptions, project: Path | None, *, for_clients: bool) -> None:
    """Serve the bus: its tools alone, under their bare names.

    `toolpost bus connect` in the same project finds this server.
    """
    root = resolve_project(project)
    address = _FREE_PORT if for_clients else options.listen

    def load() -> Config:
        return apply_options(load_project_config(root), listen=address, only=("bus",))

    announced = partial(announce, ProjectServer(root), is_daemon=for_clients)
    options.run(load, config_path=root / CONFIG_NAME, while_serving=announced)


@asynccontextmanager
async def announce(project_server: ProjectServer, served: ServedGateway, *, is_daemon: bool) -> AsyncIterator[None]:
    """Announce a server to the clients of its project while it serves; a daemon also stops when it is idle."""
    process = Daemon.current()
    server = RunningServer(
        pid=process.pid,
        bornAt=process.born_at,
        url=served.url,
        token=served.config.token(),
        project=str(project_server.project),
        host=socket.gethostname(),
    )
    other = project_server.find_running()
    if other is not None and not is_daemon:
        warn(f"clients of this project continue to use the bus server at {other.url}, process {other.pid}")
    else:
        project_server.announce(server)
    try:
        async with anyio.create_task_group() as tasks:
            if is_daemon:
                tasks.start_soon(_stop_when_idle, served, lambda: project_server.find_running() == server)
            yield
            tasks.cancel_scope.cancel()
    finally:
        project_server.withdraw(server)


async def _stop_when_idle(served: ServedGateway, is_announced: Callable[[], bool]) -> None:
    """Stop a server that had no call for `IDLE_S`, or that clients cannot find since its announcement was replaced."""
    check_s = min(_CHECK_S, IDLE_S / 10)
    gateway = served.gateway
    admitted, idle_s = gateway.admitted, 0.0
    while idle_s < IDLE_S and (is_announced() or gateway.in_flight):
        await anyio.sleep(check_s)
        is_used = gateway.in_flight > 0 or gateway.admitted != admitted
        admitted, idle_s = gateway.admitted, 0.0 if is_used else idle_s + check_s
    served.request_stop()
