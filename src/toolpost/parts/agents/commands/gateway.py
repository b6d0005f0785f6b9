"""The gateway of a chat: the one that runs, else one that is opened for the time of the chat."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout

from toolpost.settings import Config
from toolpost.terminal import NoGateway, RunningGateway


@contextmanager
def open_gateway(config: Config, url: str | None, *, here: bool, is_typed: bool) -> Iterator[RunningGateway]:
    """Yield the gateway at `url`, else the running one unless `here`, else one that is opened in this process."""
    if url is not None:
        yield RunningGateway.of(config, url)
        return
    if not here and (running := _find_running(config)) is not None:
        yield running
        return
    # Imported here: a chat with a running gateway does not need to load one.
    from toolpost.cli import open_local_gateway

    # The output of tools must not be mixed with an answer that a program reads from stdout.
    with nullcontext() if is_typed else redirect_stdout(sys.stderr), open_local_gateway(config) as opened:
        yield opened


def _find_running(config: Config) -> RunningGateway | None:
    if config.address[1] == 0:
        return None
    gateway = RunningGateway.of(config)
    try:
        gateway.ask("GET", "/healthz", limit_s=3)
    except NoGateway:
        return None
    return gateway
