"""`toolpost serve`: the gateway, on HTTP or on stdio."""

import asyncio
import gc
import os
import signal
import sys
import threading
from pathlib import Path

import anyio
import click
import msgspec

from toolpost.app import open_app, open_http, serve_on_stdio
from toolpost.config import Config, load_config, parse_address
from toolpost.endpoints.stdio import Wire


@click.command()
@click.option(
    "--stdio", is_flag=True, help="Serve the client that started this process, on stdin and stdout."
)
@click.option("--listen", metavar="HOST:PORT", help="Where to serve HTTP (default 127.0.0.1:8420).")
@click.option("--config", "config_path", type=click.Path(path_type=Path), help="Configuration file.")
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="PACKAGE.MODULE:ATTRIBUTE",
    help="A plugin to load; repeatable.",
)
def serve(*, stdio: bool, listen: str | None, config_path: Path | None, plugins: tuple[str, ...]) -> None:
    """Serve tools to MCP clients."""
    config = configured(config_path, plugins, listen)
    wire = Wire() if stdio else None
    anyio.run(_serve, config, wire, backend_options={"use_uvloop": sys.platform != "win32"})
    _leave()


def configured(path: Path | None, plugins: tuple[str, ...] = (), listen: str | None = None) -> Config:
    """Read the configuration and put the options on top."""
    config = load_config(path)
    if plugins:
        loaded = msgspec.structs.replace(config.plugins, load=[*config.plugins.load, *plugins])
        config = msgspec.structs.replace(config, plugins=loaded)
    if listen is not None:
        parse_address(listen)
        config = msgspec.structs.replace(config, http=msgspec.structs.replace(config.http, listen=listen))
    return config


async def _serve(config: Config, wire: Wire | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with open_app(config) as app:
        # What is loaded now lives as long as the process: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        if wire is not None:
            await serve_on_stdio(app, wire, stop)
            return
        async with open_http(app) as url:
            click.echo(f"toolpost serves {len(app.gateway.catalogue)} tools at {url}", err=True)
            await stop.wait()


def _leave() -> None:
    """End the process even if a synchronous tool is stuck in its thread: its call was answered long ago."""
    stuck = [
        t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon and t.is_alive()
    ]
    if any("worker" in thread.name for thread in stuck):
        click.echo(
            f"toolpost: {len(stuck)} synchronous tools are still running; leaving without them", err=True
        )
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
