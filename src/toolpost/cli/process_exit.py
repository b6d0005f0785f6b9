"""The end of the process."""

import os
import sys
import threading
from typing import Final, NoReturn

import click

from toolpost.base.ids import TOOL_THREAD

_WORKER: Final = "AnyIO worker thread"
_IDLE_S: Final = 0.5
"""Threads that have nothing to do end in far less."""


def leave(code: int) -> NoReturn:
    """End the process, even if a synchronous tool is stuck in its thread: its call was answered long ago."""
    workers = [thread for thread in threading.enumerate() if thread.name.startswith((_WORKER, TOOL_THREAD))]
    for thread in workers:
        thread.join(_IDLE_S / len(workers))
    if stuck := [thread.name for thread in workers if thread.is_alive()]:
        # What else is at work in a thread was only looking ahead, and nobody waits for it.
        tools = [name.removeprefix(TOOL_THREAD) for name in stuck if name.startswith(TOOL_THREAD)]
        if tools:
            click.echo(f"toolpost: leaving without tools that still run in a thread: {', '.join(tools)}", err=True)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def leave_reader_alone() -> None:
    """Write nothing more to whoever has stopped reading, not even when the interpreter flushes its streams."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
