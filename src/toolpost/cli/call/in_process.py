"""A call in this process: the gateway is opened for this one call, which passes all middleware."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from toolpost.app.quiet import open_quiet_app
from toolpost.base.caller import OPERATOR, Caller, ClientInfo
from toolpost.cli.call.answer import CallAnswer, parse_answer
from toolpost.cli.call.arguments import ParsedWord, arguments_of
from toolpost.cli.call.progress import open_progress
from toolpost.cli.call.questions import TerminalChannel, open_terminal_channel
from toolpost.cli.open_app_problems import find_tool, require_named_plugins, warn_of_problems
from toolpost.protocol.era import LATEST_HANDSHAKE
from toolpost.settings import Config
from toolpost.terminal.signals import on_signals
from toolpost.upstreams.handshake import CLIENT

INTERRUPTED: Final = "interrupted by Ctrl-C or SIGTERM"
"""The reason of the cancellation, as the error names it."""


@dataclass(frozen=True, kw_only=True)
class RequestedCall:
    """A call as it was typed."""

    tool: str
    words: Sequence[ParsedWord]
    limit_s: float | None = None
    quiet: bool = False


async def call_in_process(config: Config, request: RequestedCall) -> CallAnswer:
    async with open_quiet_app(config, tool=request.tool) as app:
        require_named_plugins(app)
        if not request.quiet:
            warn_of_problems(app)
        contract = find_tool(app, app.gateway.catalog, request.tool).contract
        arguments = arguments_of(request.words, contract.definition["inputSchema"])
        with open_progress(contract.name, quiet=request.quiet) as progress:
            terminal = open_terminal_channel(contract.name, progress.pause)
            call = app.gateway.admit(
                caller=_caller_at(terminal),
                name=request.tool,
                arguments=arguments,
                on_progress=progress.show,
                client_channel=terminal,
                wants_whole_result=True,
            )
            with cancel_on_signal(call.cancel, limit_s=request.limit_s) as is_timed_out:
                answer = await app.gateway.call(call)
        return parse_answer(answer, is_timed_out=is_timed_out.is_set())


def _caller_at(terminal: TerminalChannel | None) -> Caller:
    """Return the caller of a call from the command line, which can be asked if it is at a terminal."""
    if terminal is None:
        return OPERATOR
    client = ClientInfo(**CLIENT, revision=LATEST_HANDSHAKE, capabilities=terminal.capabilities)
    return replace(OPERATOR, takes_server_requests=True, client=client)


@contextmanager
def cancel_on_signal(cancel: Callable[[str], None], *, limit_s: float | None) -> Iterator[asyncio.Event]:
    """Call `cancel` with a reason on SIGINT, SIGTERM and after `limit_s`; yields an event that is set on timeout.

    The tool's own time limit is enforced by the gateway.
    """
    is_timed_out = asyncio.Event()

    def run_out() -> None:
        is_timed_out.set()
        cancel(f"it took longer than {limit_s:g} s")

    timer = None if limit_s is None else asyncio.get_running_loop().call_later(limit_s, run_out)
    try:
        with on_signals(lambda: cancel(INTERRUPTED)):
            yield is_timed_out
    finally:
        if timer is not None:
            timer.cancel()
