"""The gateway of a chat: the one that runs, else one that is opened for the time of the chat."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout

from toolpost.cli.options import is_debugging, own_url
from toolpost.cli.servers.client import NoGateway, RunningGateway, base_url
from toolpost.settings import Config


@contextmanager
def open_gateway(config: Config, url: str | None, *, here: bool, is_typed: bool) -> Iterator[RunningGateway]:
    """Yield the gateway at `url`, else the running one unless `here`, else one that is opened in this process."""
    if url is not None:
        yield RunningGateway(url=base_url(url), token=config.token(), network=config.resolve_network())
        return
    if not here and (running := _find_running(config)) is not None:
        yield running
        return
    # Imported here: a chat with a running gateway does not need to load one.
    from toolpost.parts.conversations.commands.own_gateway import open_own_gateway

    # The output of tools must not be mixed with an answer that a program reads from stdout.
    with (
        nullcontext() if is_typed else redirect_stdout(sys.stderr),
        open_own_gateway(config, debug=is_debugging()) as opened_url,
    ):
        yield RunningGateway(url=base_url(opened_url), token=config.token())


def _find_running(config: Config) -> RunningGateway | None:
    if config.address[1] == 0:
        return None
    gateway = RunningGateway(url=own_url(config), token=config.token())
    try:
        gateway.ask("GET", "/healthz", limit_s=3)
    except NoGateway:
        return None
    return gateway
