"""`toolpost serve`: the gateway, on HTTP or on stdio."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import click

from toolpost.app import open_app, open_http, serve_on_stdio
from toolpost.base.events import event
from toolpost.base.version import __version__
from toolpost.cli.collector import collect_now_and_then, spare_collector
from toolpost.cli.examples import examples
from toolpost.cli.failures import tell, warn
from toolpost.cli.gateway import problems_of, run_async
from toolpost.cli.logs import LEVELS, LogFormat, set_up_logging
from toolpost.cli.options import config_option, configured, is_debugging, json_option, plugin_option
from toolpost.cli.show import print_json_line
from toolpost.cli.signals import on_hangup, on_signals
from toolpost.endpoints.stdio import StdioStreams
from toolpost.reload import follow_config, follow_lock, take_over
from toolpost.running import App
from toolpost.settings import CONFIG_NAME, Config

_log = logging.getLogger("toolpost.serve")

MANY_TOOLS: Final = 100
"""With more tools than this, whoever starts the server is told that they need not all be in a client's context."""

_PLUGIN_LOG: Final = logging.getLogger("toolpost.plugins")


Presence = Callable[[App, str, "Stop"], AbstractAsyncContextManager[None]]
"""What is done while the server is there, besides serving: it is told where, and how to end it."""


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How the server speaks to whoever started it."""

    log_format: LogFormat
    as_json: bool


@dataclass(frozen=True, kw_only=True)
class Again:
    """Where the configuration is, and how it is read once more."""

    path: Path
    load: Callable[[], Config]


@click.command(
    epilog=examples(
        ("toolpost serve", "on http://127.0.0.1:8420/mcp"),
        ("toolpost serve --listen 127.0.0.1:9000 --plugin my_module:plugin", "elsewhere, with a plugin"),
        ("toolpost serve --only time", "one plugin alone, its tools under bare names"),
        ("toolpost serve --stdio", "for a client that starts its servers"),
        ("toolpost serve --mode automatic", "thousands of tools for the context of two"),
        ("toolpost serve --log-format json --log-level warning", "for a service manager"),
    )
)
@click.option("--stdio", is_flag=True, help="Serve the client that started this process, on stdin and stdout.")
@click.option(
    "--listen", metavar="HOST:PORT", help="Where to serve HTTP (default 127.0.0.1:8420); port 0 takes a free one."
)
@click.option(
    "--mode",
    type=click.Choice(["all", "automatic", "both"]),
    help="What clients are listed: all tools (default), automatic_mcp and automatic_eval alone, or both.",
)
@click.option("--only", metavar="PLUGIN", help="Serve one plugin alone, its tools under their bare names.")
@config_option
@plugin_option
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How events look on stderr.",
)
@click.option(
    "--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="Which events are shown."
)
@json_option("Print `{url, status, tools, plugins, …}` on stdout, on one line, once it serves.")
def serve(
    config_path: Path | None,
    plugins: tuple[str, ...],
    listen: str | None,
    mode: str | None,
    only: str | None,
    log_format: LogFormat,
    log_level: str,
    *,
    stdio: bool,
    as_json: bool,
) -> None:
    """Serve tools to MCP clients.

    The first Ctrl-C or SIGTERM lets calls in flight finish within their grace, the second cancels them. SIGHUP reads the
    configuration again, as a change of its file does.
    """
    if stdio and (listen or as_json):
        raise click.UsageError("--stdio goes with neither --listen nor --json")
    level = "debug" if is_debugging() else log_level
    set_up_logging(level, log_format)
    if log_format == "text" and level != "debug":
        # The start-up message tells of plugins that fail; what happens to them later is logged again.
        _PLUGIN_LOG.setLevel(logging.CRITICAL + 1)

    def load() -> Config:
        return configured(config_path, plugins, listen, mode, only)

    config = load()
    wire = StdioStreams() if stdio else None
    again = Again(path=config_path or Path.cwd() / CONFIG_NAME, load=load)
    run_async(serve_until_stopped, config, wire, Manner(log_format=log_format, as_json=as_json), again)


@asynccontextmanager
async def _quietly(_app: App, _url: str, _stop: "Stop") -> AsyncIterator[None]:
    yield


async def serve_until_stopped(
    config: Config, wire: StdioStreams | None, manner: Manner, again: Again, presence: Presence = _quietly
) -> None:
    """Serve on stdio, or else over HTTP, until a signal or whoever is present says that it is enough."""
    stop = Stop()
    with on_signals(stop.ask):
        async with open_app(config) as app, _following(app, again, stop):
            stop.app = app
            spare_collector()
            if wire is not None:
                announce(app, None, manner)
                await serve_on_stdio(app, wire, stop.event)
                return
            async with open_http(app) as url, presence(app, url, stop):
                announce(app, url, manner)
                await stop.event.wait()


@asynccontextmanager
async def _following(app: App, again: Again, stop: "Stop") -> AsyncIterator[None]:
    """Take over changes of the configuration and of the lock meanwhile; SIGHUP does so at once."""
    async with anyio.create_task_group() as tasks:

        def reload() -> None:
            event(_log, logging.INFO, "reloading", path=str(again.path))
            tasks.start_soon(take_over, app, again.load)

        tasks.start_soon(follow_config, app, again.path, again.load)
        tasks.start_soon(follow_lock, app)
        tasks.start_soon(collect_now_and_then, app.servers.has_learned_many)
        with on_hangup(reload, stop.ask):
            yield
        tasks.cancel_scope.cancel()


def announce(app: App, url: str | None, manner: Manner) -> None:
    """Say what is served, what is not and why, and how to end it."""
    _PLUGIN_LOG.setLevel(logging.NOTSET)
    count = len(app.gateway.catalog)
    if manner.as_json:
        print_json_line({"url": url, **app.health()})
    if manner.log_format == "json":
        event(_log, logging.INFO, "serving", url=url or "stdio", tools=count, version=__version__)
        return
    for problem in problems_of(app):
        warn(problem)
    noun = "tool" if count == 1 else "tools"
    where, ending = (f"at {url}", "Ctrl-C ends it") if url else ("on stdio", "closing stdin ends it")
    click.echo(f"toolpost {__version__} serves {count} {noun} {where} ({ending})", err=True)
    if count > MANY_TOOLS and app.config.discovery.mode == "all":
        tell(
            "hint",
            f"a client reads all {count} of them; `--mode automatic` lists two that find the others",
            colour="cyan",
        )


class Stop:
    """What a signal does: the first lets calls in flight finish, the second cancels them."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.app: App | None = None
        self._hurry: asyncio.Task[None] | None = None

    def ask(self) -> None:
        """Take a signal."""
        if not self.event.is_set():
            self.event.set()
            if self.app is not None and (count := self.app.gateway.in_flight):
                event(_log, logging.INFO, "ending", inFlight=count, graceS=self.app.config.limits.grace_s)
        elif self.app is not None and self._hurry is None:
            self._hurry = asyncio.get_running_loop().create_task(self.app.gateway.drain(0))
