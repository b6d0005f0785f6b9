"""`toolpost bus serve`: its tools under their bare names, for everybody in the project to find."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import click

from toolpost.cli.examples import examples
from toolpost.cli.failures import warn
from toolpost.cli.gateway import run_async
from toolpost.cli.logs import LEVELS, LogFormat, set_up_logging
from toolpost.cli.options import apply_options, is_debugging, json_option
from toolpost.cli.serve import ConfigSource, ServeOutput, Stop, WhileServing, serve_until_stopped
from toolpost.endpoints.stdio import StdioStreams
from toolpost.parts.bus.commands.project import ProjectServer, RunningServer, load_project_config, project_of
from toolpost.parts.bus.settings import BUS
from toolpost.running import App
from toolpost.settings import CONFIG_NAME, Config
from toolpost.upstreams.process.tree import this_process

_FREE_PORT: Final = "127.0.0.1:0"
_CHECK_S: Final = 10.0
"""How often a server looks whether it is still used."""


@click.command(
    epilog=examples(
        ("toolpost bus serve", "on the address of the configuration, 127.0.0.1:8420"),
        ("toolpost bus serve --listen 0.0.0.0:8421", "for other machines; TOOLPOST_TOKEN must be set"),
        ("toolpost bus serve --stdio", "for one client that starts it"),
    )
)
@click.option("--stdio", is_flag=True, help="Serve the client that started this process, on stdin and stdout.")
@click.option("--listen", metavar="HOST:PORT", help="Where to serve HTTP; port 0 takes a free one.")
@click.option(
    "--project",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The project whose bus it is (default: the one around this folder).",
)
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
    if stdio and (listen or as_json):
        raise click.UsageError("--stdio cannot be used with --listen or --json")
    set_up_logging("debug" if is_debugging() else log_level, log_format)
    root = project_of(Path.cwd()) if project is None else project.resolve()
    address = _FREE_PORT if for_clients else listen

    def load() -> Config:
        return apply_options(load_project_config(root), listen=address, only="bus")

    again = ConfigSource(path=root / CONFIG_NAME, load=load)
    manner = ServeOutput(log_format=log_format, as_json=as_json)
    presence = announce_while_serving(ProjectServer(root), is_daemon=for_clients)
    run_async(serve_until_stopped, load(), StdioStreams() if stdio else None, manner, again, presence)


def announce_while_serving(files: ProjectServer, *, is_daemon: bool) -> WhileServing:
    """Be found by the clients of a project; a daemon ends when it was not used for long."""

    @asynccontextmanager
    async def present(app: App, url: str, stop: Stop) -> AsyncIterator[None]:
        me = this_process()
        server = RunningServer(
            pid=me.pid,
            bornAt=me.born_at,
            url=url,
            token=app.config.token(),
            project=str(files.project),
            host=socket.gethostname(),
        )
        other = files.find_running()
        if other is not None and not is_daemon:
            warn(f"clients of this project go on using the bus server at {other.url}, process {other.pid}")
        else:
            files.announce(server)
        try:
            async with anyio.create_task_group() as tasks:
                if is_daemon:
                    tasks.start_soon(_end_when_idle, app, stop, lambda: files.find_running() == server)
                yield
                tasks.cancel_scope.cancel()
        finally:
            files.withdraw(server)

    return present


async def _end_when_idle(app: App, stop: Stop, is_found: Callable[[], bool]) -> None:
    """End a server that nobody has used for long, or that nobody can find any more."""
    limit_s = BUS.of(app.config).idle_s
    look_s = min(_CHECK_S, limit_s / 10)
    seen, unused_s = app.gateway.admitted, 0.0
    while unused_s < limit_s and (is_found() or app.gateway.in_flight):
        await anyio.sleep(look_s)
        is_used = app.gateway.in_flight > 0 or app.gateway.admitted != seen
        seen, unused_s = app.gateway.admitted, 0.0 if is_used else unused_s + look_s
    stop.request_stop()
