"""`toolpost bus serve`: a gateway with the tools of the bus alone, under their bare names, which clients of the project find."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import click

from toolpost.app import App, StdioStreams
from toolpost.cli import ConfigSource, ServeOutput, Stop, WhileServing, check_serve_options, serve_until_stopped
from toolpost.parts.bus.commands.project import ProjectServer, RunningServer, load_project_config
from toolpost.parts.bus.commands.server import project_option, resolve_project
from toolpost.processes import Daemon
from toolpost.settings import CONFIG_NAME, Config
from toolpost.terminal import (
    LEVELS,
    LogFormat,
    apply_options,
    examples,
    is_debugging,
    json_option,
    run_async,
    set_up_logging,
    warn,
)

_FREE_PORT: Final = "127.0.0.1:0"
IDLE_S: Final = 3_600.0
"""How long a server that `bus connect` started goes on without a call."""
_CHECK_S: Final = 10.0
"""How often a server checks whether it is still used."""


@click.command(
    epilog=examples(
        ("toolpost bus serve", "on the address of the configuration, 127.0.0.1:8420"),
        ("toolpost bus serve --listen 0.0.0.0:8421", "for other machines; TOOLPOST_TOKEN must be set"),
        ("toolpost bus serve --stdio", "for one client that starts it"),
    )
)
@click.option("--stdio", is_flag=True, help="Serve the client that started this process, on stdin and stdout.")
@click.option("--listen", metavar="HOST:PORT", help="Where to serve HTTP; port 0 takes a free one.")
@project_option
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of log events on stderr.",
)
@click.option(
    "--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="Which events are shown."
)
@click.option("--for-clients", is_flag=True, hidden=True)
@json_option("Print `{url, status, tools, …}` on stdout, on one line, once it serves.")
def serve(
    listen: str | None,
    project: Path | None,
    log_format: LogFormat,
    log_level: str,
    *,
    stdio: bool,
    for_clients: bool,
    as_json: bool,
) -> None:
    """Serve the bus: its tools alone, under their bare names.

    `toolpost bus connect` in the same project finds this server.
    """
    check_serve_options(stdio=stdio, listen=listen, as_json=as_json)
    set_up_logging("debug" if is_debugging() else log_level, log_format)
    root = resolve_project(project)
    address = _FREE_PORT if for_clients else listen

    def load() -> Config:
        return apply_options(load_project_config(root), listen=address, only=("bus",))

    source = ConfigSource(path=root / CONFIG_NAME, load=load)
    output = ServeOutput(log_format=log_format, as_json=as_json)
    while_serving = announce_while_serving(ProjectServer(root), is_daemon=for_clients)
    run_async(serve_until_stopped, load(), StdioStreams() if stdio else None, output, source, while_serving)


def announce_while_serving(project_server: ProjectServer, *, is_daemon: bool) -> WhileServing:
    """Announce a server to the clients of its project while it serves; a daemon also stops when it is idle."""

    @asynccontextmanager
    async def announce(app: App, url: str, stop: Stop) -> AsyncIterator[None]:
        process = Daemon.current()
        server = RunningServer(
            pid=process.pid,
            bornAt=process.born_at,
            url=url,
            token=app.config.token(),
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
                    tasks.start_soon(_stop_when_idle, app, stop, lambda: project_server.find_running() == server)
                yield
                tasks.cancel_scope.cancel()
        finally:
            project_server.withdraw(server)

    return announce


async def _stop_when_idle(app: App, stop: Stop, is_announced: Callable[[], bool]) -> None:
    """Stop a server that had no call for `IDLE_S`, or that clients cannot find since its announcement was replaced."""
    check_s = min(_CHECK_S, IDLE_S / 10)
    admitted, idle_s = app.gateway.admitted, 0.0
    while idle_s < IDLE_S and (is_announced() or app.gateway.in_flight):
        await anyio.sleep(check_s)
        is_used = app.gateway.in_flight > 0 or app.gateway.admitted != admitted
        admitted, idle_s = app.gateway.admitted, 0.0 if is_used else idle_s + check_s
    stop.request_stop()
