"""The gateway inside this process, for one command: its logs and its tools' prints stay off stdout."""

import sys
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, redirect_stdout
from typing import Final

import click
import msgspec

from toolpost.app.app import App
from toolpost.app.open import OpenOptions, open_app
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings
from toolpost.terminal.failures import is_debugging
from toolpost.terminal.logging import set_up_logging
from toolpost.upstreams.spec import ServerSpec

_IN_MEMORY: Final = StoreSettings(url="sqlite::memory:")

LEARN_LIMIT_S: Final = 30.0
"""How long a command waits for servers to list their tools: unlike a server, it cannot add them later."""


@asynccontextmanager
async def open_quiet_app(
    config: Config,
    *,
    enforces_lock: bool = True,
    servers: Sequence[ServerSpec] | None = None,
    tool: str | None = None,
    credentials_of: Config | None = None,
) -> AsyncIterator[App]:
    """Open the gateway; only the command's result goes to stdout.

    `enforces_lock=False` skips quarantine by the lock. `servers` replaces those that are configured; with `tool`, only those
    start that this tool needs. `credentials_of` names the store whose credentials are used, for a command whose own store is
    in memory.
    """
    set_up_logging("debug" if is_debugging() else "critical")

    def print_waiting(names: Collection[str]) -> None:
        click.echo(f"waiting for {', '.join(sorted(names))} to start (at most {LEARN_LIMIT_S:g} s)…", err=True)

    with redirect_stdout(sys.stderr):
        async with open_app(
            config,
            servers=servers,
            options=OpenOptions(
                for_one_command=True,
                enforces_lock=enforces_lock,
                tool=tool,
                credentials_of=credentials_of,
                learn_limit_s=LEARN_LIMIT_S,
                on_wait=print_waiting,
            ),
        ) as app:
            yield app


def without_store(config: Config) -> Config:
    """Replace the store by one in memory, for commands that must leave nothing behind."""
    return msgspec.structs.replace(config, store=_IN_MEMORY)
