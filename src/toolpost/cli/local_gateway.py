"""A gateway that a command opens for itself, for as long as it runs."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import msgspec
from anyio.from_thread import start_blocking_portal

from toolpost.app import open_app, open_http
from toolpost.cli.open_app_problems import warn_of_problems
from toolpost.settings import Config
from toolpost.terminal.failures import is_debugging
from toolpost.terminal.logging import set_up_logging
from toolpost.terminal.running_gateway import RunningGateway, base_url


@contextmanager
def open_local_gateway(config: Config) -> Iterator[RunningGateway]:
    """Open a gateway on a free port of the loopback interface, on an event loop in a thread of its own.

    What failed in it is printed as warnings; of its log only the critical events are shown, all with `--debug`.
    """
    set_up_logging("debug" if is_debugging() else "critical")
    http = msgspec.structs.replace(config.http, listen="127.0.0.1:0")

    @asynccontextmanager
    async def open_async() -> AsyncIterator[str]:
        async with (
            open_app(msgspec.structs.replace(config, http=http)) as app,
            open_http(app, preload_sdk=False) as url,
        ):
            warn_of_problems(app)
            yield url

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(open_async()) as url:
        yield RunningGateway(url=base_url(url), token=config.token())
