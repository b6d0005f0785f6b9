"""A gateway in this process, on an event loop in a thread of its own."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import msgspec
from anyio.from_thread import start_blocking_portal

from toolpost.app import open_app, open_http
from toolpost.cli.gateway import warn_of_problems
from toolpost.cli.logs.format import set_up_logging
from toolpost.settings import Config


@contextmanager
def open_own_gateway(config: Config, *, debug: bool) -> Iterator[str]:
    """Open a gateway on a free port of the loopback interface, and yield its URL."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(_open(config, debug=debug)) as url:
        yield url


@asynccontextmanager
async def _open(config: Config, *, debug: bool) -> AsyncIterator[str]:
    set_up_logging("debug" if debug else "critical")
    http = msgspec.structs.replace(config.http, listen="127.0.0.1:0")
    async with open_app(msgspec.structs.replace(config, http=http)) as app, open_http(app, loads_early=False) as url:
        warn_of_problems(app)
        yield url
