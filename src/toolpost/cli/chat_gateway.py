"""The gateway that a chat goes through: the one that runs, else one that is opened here for as long as the chat lasts."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, redirect_stdout

import msgspec
from anyio.from_thread import start_blocking_portal

from toolpost.app import open_app, open_http
from toolpost.cli.in_process import warn_of_problems
from toolpost.cli.logs import set_up_logging
from toolpost.cli.options import is_debugging, own_url
from toolpost.cli.servers_client import NoGateway, RunningGateway, base_url
from toolpost.config import Config


@contextmanager
def open_gateway(config: Config, url: str | None, *, here: bool, is_typed: bool) -> Iterator[RunningGateway]:
    """Find a gateway that answers, or open one."""
    if url is not None:
        yield RunningGateway(url=base_url(url), token=config.token())
        return
    if not here and (running := _running(config)) is not None:
        yield running
        return
    # What a tool prints must not get into an answer that a program reads.
    with (
        nullcontext() if is_typed else redirect_stdout(sys.stderr),
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_opened(config, debug=is_debugging())) as opened,
    ):
        yield RunningGateway(url=base_url(opened), token=config.token())


def _running(config: Config) -> RunningGateway | None:
    if config.address[1] == 0:
        return None
    gateway = RunningGateway(url=own_url(config), token=config.token())
    try:
        gateway.ask("GET", "/healthz", limit_s=3)
    except NoGateway:
        return None
    return gateway


@asynccontextmanager
async def _opened(config: Config, *, debug: bool) -> AsyncIterator[str]:
    set_up_logging("debug" if debug else "critical")
    http = msgspec.structs.replace(config.http, listen="127.0.0.1:0")
    async with open_app(msgspec.structs.replace(config, http=http)) as app, open_http(app) as url:
        warn_of_problems(app)
        yield url
