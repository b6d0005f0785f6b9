"""The gateway that a chat goes through: the one that runs, else one that is opened here for as long as the chat lasts."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout

from toolpost.cli.options import is_debugging, own_url
from toolpost.cli.servers.client import NoGateway, RunningGateway, base_url
from toolpost.settings import Config


@contextmanager
def open_gateway(config: Config, url: str | None, *, here: bool, is_typed: bool) -> Iterator[RunningGateway]:
    """Find a gateway that answers, or open one."""
    if url is not None:
        yield RunningGateway(url=base_url(url), token=config.token())
        return
    if not here and (running := _running(config)) is not None:
        yield running
        return
    from toolpost.parts.conversations.commands.own_gateway import (
        opened_here,  # A chat with a gateway that runs starts without all that one needs.
    )

    # What a tool prints must not get into an answer that a program reads.
    with (
        nullcontext() if is_typed else redirect_stdout(sys.stderr),
        opened_here(config, debug=is_debugging()) as opened,
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
