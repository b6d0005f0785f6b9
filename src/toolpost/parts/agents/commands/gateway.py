"""The gateway of a chat: the one that runs, else one that is opened for the time of the chat."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, redirect_stdout

from toolpost.settings import Config
from toolpost.terminal import NoGateway, RunningGateway, base_url, gateway_url, is_debugging


@contextmanager
def open_gateway(config: Config, url: str | None, *, here: bool, is_typed: bool) -> Iterator[RunningGateway]:
    """Yield the gateway at `url`, else the running one unless `here`, else one that is opened in this process."""
    if url is not None:
        yield RunningGateway(url=base_url(url), token=config.token(), network=config.resolve_network())
        return
    if not here and (running := _find_running(config)) is not None:
        yield running
        return
    # The output of tools must not be mixed with an answer that a program reads from stdout.
    with (
        nullcontext() if is_typed else redirect_stdout(sys.stderr),
        _open_here(config) as opened_url,
    ):
        yield RunningGateway(url=base_url(opened_url), token=config.token())


@contextmanager
def _open_here(config: Config) -> Iterator[str]:
    """Open a gateway on a free port of the loopback interface, on an event loop in a thread of its own; yields its URL."""
    # Imported here: a chat with a running gateway does not need to load one.
    import msgspec
    from anyio.from_thread import start_blocking_portal

    from toolpost.app import open_app, open_http
    from toolpost.cli import warn_of_problems
    from toolpost.terminal import set_up_logging

    http = msgspec.structs.replace(config.http, listen="127.0.0.1:0")

    @asynccontextmanager
    async def open_async() -> AsyncIterator[str]:
        set_up_logging("debug" if is_debugging() else "critical")
        async with (
            open_app(msgspec.structs.replace(config, http=http)) as app,
            open_http(app, preload_sdk=False) as url,
        ):
            warn_of_problems(app)
            yield url

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(open_async()) as url:
        yield url


def _find_running(config: Config) -> RunningGateway | None:
    if config.address[1] == 0:
        return None
    gateway = RunningGateway(url=gateway_url(config), token=config.token())
    try:
        gateway.ask("GET", "/healthz", limit_s=3)
    except NoGateway:
        return None
    return gateway
