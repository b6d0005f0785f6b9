"""`toolpost console`: open the console of the running gateway in a browser."""

import html
import os
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import click

from toolpost import NotFound
from toolpost.base import STATE_FOLDER, make_folder
from toolpost.endpoints.http import LOCAL_HOSTS
from toolpost.parts.console.gateway_id import port_of, read_gateway_id
from toolpost.parts.console.sessions import ConsoleSessions
from toolpost.settings import Config
from toolpost.store import open_store, shown_url, store_exists
from toolpost.terminal import (
    RunningGateway,
    config_option,
    examples,
    load_cli_config,
    run_async,
    url_option,
)

WAIT_S: Final = 20.0
"""How long the browser may take to open the address; it may have to be started first."""
LOOK_S: Final = 0.2

_REDIRECT: Final = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<title>Toolpost</title>
<meta http-equiv="refresh" content="0; url={address}">
<p><a href="{address}">Open the console</a></p>
"""


@click.command(
    epilog=examples(
        ("toolpost console", "of the gateway of this folder"),
        ("toolpost console --no-browser", "print the address, to be opened elsewhere"),
    )
)
@click.option("--no-browser", is_flag=True, help="Print the address instead of opening it.")
@url_option
@config_option
def console(url: str | None, config_path: Path | None, *, no_browser: bool) -> None:
    """Open the web console in a browser.

    The address has a secret that can be used once: with it the browser may change servers and contracts. Where no token is
    required, it may only look without it.
    """
    config = load_cli_config(config_path)
    running = RunningGateway.of(config, url)
    # Without the token, which `/healthz` does not need.
    replace(running, token=None).ask("GET", "/healthz")
    gateway = running.url
    # Its own port where it listens on this machine; else a proxy is in front of it.
    port = port_of(gateway) if urlsplit(gateway).hostname in LOCAL_HOSTS else config.address[1]
    # A browser may be on another machine, and then reaches the gateway at its public URL alone.
    shown = gateway if url else config.http.base_url(gateway) or gateway
    address, secret = f"{shown}/", run_async(_issue, config, port)
    if secret is None:
        if no_browser or not _open(address):
            click.echo(address)
        return
    address += f"#secret={secret}"
    try:
        if no_browser or not _open_by_file(config, address, port, secret):
            click.echo(address)
    except OSError:
        # There is no place for the file.
        click.echo(address)


async def _issue(config: Config, port: int) -> str | None:
    if not await store_exists(config.store_url):
        if config.requires_token:
            # The gateway may be on another machine: with a token everything but changes is possible.
            return None
        raise NotFound(
            f"There is no store at {shown_url(config.store_url)} that could keep a secret.",
            hint="start `toolpost serve` at a terminal, which prints an address to open",
        )
    try:
        gateway = read_gateway_id(config)
    except OSError as error:
        raise NotFound(
            f"The id of the gateway cannot be read: {error}.",
            hint="start `toolpost serve` at a terminal, which prints an address to open",
        ) from error
    async with open_store(config.store_url) as store:
        return await ConsoleSessions(store, gateway).issue(port)


def _open_by_file(config: Config, address: str, port: int, secret: str) -> bool:
    """Have a browser open a file that leads to the address; False if there is none, which is known at once.

    All users of the machine can see the arguments of a command, and could use the secret before the browser does. The file can be
    read by its owner alone, and is gone when the secret has been used.
    """
    with _write_redirect(Path(config.project) / STATE_FOLDER, address) as path:
        if not _open(path.as_uri()):
            return False
        if not run_async(_wait_until_used, config, port, secret):
            click.echo(
                "The browser has not opened it. `toolpost console --no-browser` prints an address to open by hand.",
                err=True,
            )
    return True


@contextmanager
def _write_redirect(folder: Path, address: str) -> Iterator[Path]:
    make_folder(folder)
    handle, name = tempfile.mkstemp(prefix="console-", suffix=".html", dir=folder)
    path = Path(name).absolute()
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(_REDIRECT.format(address=html.escape(address)))
        yield path
    finally:
        path.unlink(missing_ok=True)


async def _wait_until_used(config: Config, port: int, secret: str) -> bool:
    async with open_store(config.store_url) as store:
        sessions = ConsoleSessions(store, read_gateway_id(config))
        for _ in range(round(WAIT_S / LOOK_S)):
            if not await sessions.is_unused(secret, port):
                return True
            await anyio.sleep(LOOK_S)
    return False


def _open(address: str) -> bool:
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False
