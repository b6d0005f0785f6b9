"""`toolpost serve`: run the gateway on HTTP or stdio until a signal stops it."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import reduce, wraps
from pathlib import Path
from typing import Any, Final

import anyio
import click

from toolpost.app import App, open_app, open_http, serve_on_stdio
from toolpost.app.open import OpenOptions
from toolpost.app.reload import apply_config, follow_config, follow_lock
from toolpost.base.events import event
from toolpost.base.version import __version__
from toolpost.cli.logs.files import write_log_files
from toolpost.cli.open_app_problems import problems_of, require_named_plugins
from toolpost.endpoints.http.paths import MCP_PATH
from toolpost.endpoints.http.routes import StartupLine
from toolpost.endpoints.stdio import StdioStreams
from toolpost.gateway import Gateway
from toolpost.settings import CONFIG_NAME, Config
from toolpost.terminal import (
    config_option,
    examples,
    json_option,
    load_cli_config,
    log_level_option,
    on_signals,
    plugin_option,
    print_json_line,
    run_async,
    warn,
)
from toolpost.terminal.failures import is_debugging, tell
from toolpost.terminal.logging import LogFormat, set_up_logging
from toolpost.terminal.options import mention_unused_client_file
from toolpost.terminal.signals import on_hangup

_log = logging.getLogger("toolpost.serve")

MANY_TOOLS: Final = 100
"""Above this number of tools, `--mode automatic` is suggested at the start."""

_PLUGIN_LOG: Final = logging.getLogger("toolpost.plugins")

WhileServing = Callable[["ServedGateway"], AbstractAsyncContextManager[None]]
"""Makes a context manager that is open while a gateway serves HTTP."""

LOOK_S: Final = 1.0

GROWN: Final = 10
"""After so many middle-generation collections up to 77,000 objects are new, and a full one takes some 10 ms."""

_NEVER: Final = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class ServeOutput:
    """How the server reports to the terminal or service manager."""

    log_format: LogFormat
    as_json: bool


@dataclass(frozen=True, kw_only=True)
class ServedGateway:
    """A gateway that serves HTTP, for the command that serves it."""

    url: str
    config: Config
    gateway: Gateway
    request_stop: Callable[[], None]
    """As the first signal does: calls in flight may finish."""


@dataclass(frozen=True, kw_only=True)
class ConfigSource:
    """The path of the configuration and how to load it."""

    path: Path
    load: Callable[[], Config]
    follow: Callable[[App], Coroutine[Any, Any, None]] | None = None
    """Follows other files too, until cancelled."""


_stdio_option: Final = click.option(
    "--stdio", is_flag=True, help="Serve the client that started this process, on stdin and stdout."
)
_listen_option: Final = click.option(
    "--listen", metavar="HOST:PORT", help="Address to serve HTTP on (default 127.0.0.1:8420); port 0 takes a free one."
)
_log_format_option: Final = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of log events on stderr.",
)
_json_option: Final = json_option("Print `{url, status, tools, plugins, …}` on stdout, on one line, once it serves.")


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """The options of a command that serves one configuration, as `toolpost serve` has them; `serve_options` adds them."""

    stdio: bool
    listen: str | None
    log_format: LogFormat
    log_level: str
    as_json: bool

    def run(self, load: Callable[[], Config], *, config_path: Path, while_serving: WhileServing | None = None) -> None:
        """Serve until a signal, or until `while_serving` requests a stop, which is open while it serves HTTP.

        The configuration is loaded again when its file changes. `listen` is left to `load`.
        """
        set_up_logging("debug" if is_debugging() else self.log_level, self.log_format)
        output = ServeOutput(log_format=self.log_format, as_json=self.as_json)
        source = ConfigSource(path=config_path, load=load)
        wire = StdioStreams() if self.stdio else None
        run_async(serve_until_stopped, load(), wire, output, source, while_serving or _do_nothing)


def serve_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that serves; it gets them as `options`."""

    @wraps(command)
    def run(
        *, stdio: bool, listen: str | None, log_format: LogFormat, log_level: str, as_json: bool, **rest: Any
    ) -> Any:
        check_serve_options(stdio=stdio, listen=listen, as_json=as_json)
        options = ServeOptions(stdio=stdio, listen=listen, log_format=log_format, log_level=log_level, as_json=as_json)
        return command(options=options, **rest)

    added = (_stdio_option, _listen_option, _log_format_option, log_level_option("info"), _json_option)
    return reduce(lambda found, option: option(found), reversed(added), run)


@click.command(
    epilog=examples(
        ("toolpost serve", "on http://127.0.0.1:8420/mcp"),
        ("toolpost serve --listen 127.0.0.1:9000 --plugin my_module:plugin", "elsewhere, with a plugin"),
        ("toolpost serve --only models --only approvals", "only these plugins, tools without prefix"),
        ("toolpost serve --stdio", "for a client that starts its MCP servers"),
        ("toolpost serve --mode automatic", "list two tools that find all others"),
        ("toolpost serve --reload --plugin notes:plugin", "while you write it"),
        ("toolpost serve --log-format json --log-level warning", "for a service manager"),
    )
)
@_stdio_option
@_listen_option
@click.option(
    "--mode",
    type=click.Choice(["all", "automatic", "both"]),
    help="Which tools clients see listed: all (default), only automatic_mcp and automatic_eval, or both.",
)
@click.option(
    "--only", metavar="PLUGIN", multiple=True, help="Serve only this plugin, its tools without the prefix; repeatable."
)
@config_option
@plugin_option
@click.option(
    "--reload",
    is_flag=True,
    help="Load plugins again when their files change; a plugin that fails to load stays as it was.",
)
@_log_format_option
@log_level_option("info")
@_json_option
def serve(
    config_path: Path | None,
    plugins: tuple[str, ...],
    listen: str | None,
    mode: str | None,
    only: tuple[str, ...],
    log_format: LogFormat,
    log_level: str,
    *,
    stdio: bool,
    reload: bool,
    as_json: bool,
) -> None:
    """Serve tools to MCP clients.

    The first Ctrl-C or SIGTERM lets calls in flight finish for `limits.grace_s`, the second cancels them. SIGHUP reloads the
    configuration, as a change of the file does. With --reload, clients stay connected and are notified of changed lists, and
    tracebacks have the lines of a plugin alone.
    """
    check_serve_options(stdio=stdio, listen=listen, as_json=as_json)
    level = "debug" if is_debugging() else log_level
    set_up_logging(level, log_format, of_author=reload and level != "debug")
    if log_format == "text" and level != "debug" and not reload:
        # The start-up message reports failed plugins; their log is turned on again after it.
        _PLUGIN_LOG.setLevel(logging.CRITICAL + 1)

    def load() -> Config:
        return load_cli_config(config_path, plugins, listen, mode, only)

    config = load()
    if log_format == "text":
        mention_unused_client_file(config_path)
    write_log_files(config.log_path, keep_mb=config.log.keep_mb)
    wire = StdioStreams() if stdio else None
    follow = None
    if reload:
        from toolpost.cli.plugin_reload import watch_plugins

        follow = watch_plugins(config)
    source = ConfigSource(path=config_path or Path.cwd() / CONFIG_NAME, load=load, follow=follow)
    run_async(serve_until_stopped, config, wire, ServeOutput(log_format=log_format, as_json=as_json), source)


def check_serve_options(*, stdio: bool, listen: str | None, as_json: bool) -> None:
    """Raise a usage error for options of HTTP beside `--stdio`."""
    if stdio and (listen or as_json):
        raise click.UsageError("--stdio cannot be used with --listen or --json")


@asynccontextmanager
async def _do_nothing(_served: ServedGateway) -> AsyncIterator[None]:
    yield


async def serve_until_stopped(
    config: Config,
    wire: StdioStreams | None,
    output: ServeOutput,
    source: ConfigSource,
    while_serving: WhileServing = _do_nothing,
) -> None:
    """Serve on stdio if there is a `wire`, else over HTTP, until a signal or `while_serving` requests a stop."""
    stop = Stop()
    with on_signals(stop.request_stop), _without_collections():
        async with (
            open_app(config, options=OpenOptions(config_path=source.path)) as app,
            _follow_changes(app, source, stop),
        ):
            stop.app = app
            if source.follow is None:
                # A file that is followed can still be repaired; what `serve` is asked for must be there.
                require_named_plugins(app)
            freeze_loaded_objects()
            if wire is not None:
                announce(app, None, output)
                await serve_on_stdio(app, wire, stop.event)
                return
            async with open_http(app) as url, while_serving(_describe(app, url, stop)):
                is_for_people = output.log_format == "text"
                welcome = await _make_startup_lines(app, url.removesuffix(MCP_PATH)) if is_for_people else []
                announce(app, url, output, welcome)
                await stop.event.wait()


async def _make_startup_lines(app: App, url: str) -> list[str]:
    lines: list[str] = []
    for part, line in app.contributions.named(StartupLine):
        try:
            lines.append(await line.make(url))
        except Exception as error:  # noqa: BLE001 (a part may raise anything; a greeting is not worth the gateway)
            event(_log, logging.ERROR, "startup line failed", part=part, exception=error)
    return lines


def _describe(app: App, url: str, stop: "Stop") -> ServedGateway:
    return ServedGateway(url=url, config=app.config, gateway=app.gateway, request_stop=stop.request_stop)


@asynccontextmanager
async def _follow_changes(app: App, source: ConfigSource, stop: "Stop") -> AsyncIterator[None]:
    """Apply changes of the configuration, the lock and what else is followed while it is open; SIGHUP reloads at once."""
    async with anyio.create_task_group() as tasks:

        def reload() -> None:
            event(_log, logging.INFO, "reloading", path=str(source.path))
            tasks.start_soon(apply_config, app, source.load)

        tasks.start_soon(follow_config, app, source.path, source.load)
        tasks.start_soon(follow_lock, app)
        if source.follow is not None:
            tasks.start_soon(source.follow, app)
        tasks.start_soon(run_collections, lambda: has_made_many(app))
        with on_hangup(reload, stop.request_stop):
            yield
        tasks.cancel_scope.cancel()


def announce(app: App, url: str | None, output: ServeOutput, welcome: Sequence[str] = ()) -> None:
    """Print what is served, what failed and why, and how to stop; as text also what parts have to say (`welcome`)."""
    _PLUGIN_LOG.setLevel(logging.NOTSET)
    count = len(app.gateway.catalog)
    if output.as_json:
        print_json_line({"url": url, **app.monitor.health()})
    if output.log_format == "json":
        event(_log, logging.INFO, "serving", url=url or "stdio", tools=count, version=__version__)
        return
    for problem in problems_of(app):
        warn(problem)
    noun = "tool" if count == 1 else "tools"
    shown = f"{app.config.http.base_url(url)}{MCP_PATH}" if url and app.config.http.public_url else url
    where, ending = (f"at {shown}", "Ctrl-C stops it") if url else ("on stdio", "closing stdin stops it")
    click.echo(f"toolpost {__version__} serves {count} {noun} {where} ({ending})", err=True)
    for line in welcome:
        click.echo(line, err=True)
    if count > MANY_TOOLS and app.config.discovery.mode == "all":
        tell(
            "hint",
            f"clients load all {count} of them into the model's context; `--mode automatic` lists two that find the others",
            color="cyan",
        )


class Stop:
    """Shutdown by signals: the first lets calls in flight finish, the second cancels them."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.app: App | None = None
        self._hurry: asyncio.Task[None] | None = None

    def request_stop(self) -> None:
        if not self.event.is_set():
            self.event.set()
            if self.app is not None and (count := self.app.gateway.in_flight):
                event(_log, logging.INFO, "ending", inFlight=count, graceS=self.app.config.limits.grace_s)
        elif self.app is not None and self._hurry is None:
            self._hurry = asyncio.get_running_loop().create_task(self.app.gateway.drain(0))


@contextmanager
def _without_collections() -> Iterator[None]:
    """Turn collections off until `freeze_loaded_objects`: with 6,000 tools they took a third of a start.

    A start leaves no garbage to speak of: 41 objects of 350,000.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def freeze_loaded_objects() -> None:
    """Exclude all current objects from collections, as they live as long as the process, and turn automatic full ones off."""
    gc.freeze()
    gc.enable()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)


def has_made_many(app: App) -> bool:
    """Whether a server listed very many tools, or an API has a large document, within some minutes."""
    return app.servers.learning.has_learned_many() or app.plugins.has_made_many()


async def run_collections(has_made_many: Callable[[], bool]) -> None:
    """Freeze objects while many new tools are loaded, else run full collections when due; until cancelled."""
    while True:
        await anyio.sleep(LOOK_S)
        if gc.get_count()[2] < GROWN:
            continue
        if has_made_many():
            # Garbage that is frozen is never freed: collect what is young first.
            gc.collect(1)
            gc.freeze()
        else:
            gc.collect()
