"""The gateway inside this process, for one command: its logs kept back, its tools' prints kept off stdout."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, redirect_stdout
from typing import Any, Final, TypeVar

import anyio
import click
import msgspec
from click.shell_completion import CompletionItem

from toolpost.app import open_app
from toolpost.cli.failures import warn
from toolpost.cli.logs import set_up_logging
from toolpost.cli.options import configured, is_debugging
from toolpost.config import Config, StoreSettings
from toolpost.contracts.errors import UnknownTool
from toolpost.discovery import Catalogue
from toolpost.running import App
from toolpost.sources import HeldTool

Result = TypeVar("Result")

_FORGETFUL: Final = StoreSettings(url="sqlite::memory:")

LEARN_LIMIT_S: Final = 30.0
"""How long one command waits for servers to say what they have: for it, nothing comes later."""


def run_async(function: Callable[..., Awaitable[Result]], *arguments: Any) -> Result:
    """Run an asynchronous function on the event loop that the server uses."""
    return anyio.run(function, *arguments, backend_options={"use_uvloop": sys.platform != "win32"})


@asynccontextmanager
async def open_quiet_app(config: Config, *, holds: bool = True) -> AsyncIterator[App]:
    """Open the gateway, its tools held to the lock or not; nothing but the answer of the command gets to stdout."""
    set_up_logging("debug" if is_debugging() else "critical")
    with redirect_stdout(sys.stderr):
        # One command is over before there is anything to follow.
        once = msgspec.structs.replace(config, workspace=msgspec.structs.replace(config.workspace, watch=False))
        async with open_app(once, holds=holds, learn_limit_s=LEARN_LIMIT_S) as app:
            yield app


def without_store(config: Config) -> Config:
    """Leave nothing behind: for commands that only look."""
    return msgspec.structs.replace(config, store=_FORGETFUL)


def problems_of(app: App) -> list[str]:
    """Say which plugins failed and which tools were refused or are withheld, each by name and with its reason."""
    failed = [problem for plugin in app.host.plugins for problem in plugin.problems]
    return failed + [
        f"`{name}` is withheld: it is no longer as it was {source.standings[name].since}; `toolpost diff` says why"
        for source in app.servers.sources.values()
        for name in source.withheld
    ]


def warn_of_problems(app: App) -> None:
    """Write them on stderr."""
    for problem in problems_of(app):
        warn(problem)


def find_tool(catalogue: Catalogue, name: str) -> HeldTool:
    """Return a tool, or say where the names are."""
    try:
        return catalogue.find(name)
    except UnknownTool as error:
        if "server" in error.details:
            raise
        near = error.details.get("nearest")
        meant = f"did you mean `{near[0]}`? " if near else ""
        raise UnknownTool(error.message, hint=f"{meant}`toolpost tools` lists all of them") from error


def complete_tool_names(
    context: click.Context,
    parameter: click.Parameter,  # noqa: ARG001 (click's signature)
    incomplete: str,
) -> list[CompletionItem]:
    """Complete the name of a tool; whoever presses Tab is not told of errors."""
    try:
        config = configured(context.params.get("config_path"), context.params.get("plugins") or ())
        tools = run_async(_tools, without_store(config))
    except Exception:  # noqa: BLE001 (a shell that completes has no place for a message)
        return []
    return [
        CompletionItem(tool.contract.name, help=tool.contract.terms.title)
        for tool in tools
        if tool.contract.name.startswith(incomplete)
    ]


async def _tools(config: Config) -> list[HeldTool]:
    async with open_quiet_app(config) as app:
        return list(app.gateway.catalogue)
