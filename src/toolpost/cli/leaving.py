"""The end of the process."""

import os
import sys
import threading
from typing import Final, NoReturn

import click

_WORKER: Final = "AnyIO worker thread"
_IDLE_S: Final = 0.5
"""Threads that have nothing to do end in far less."""


def leave(code: int) -> NoReturn:
    """End the process, even if a synchronous tool is stuck in its thread: its call was answered long ago."""
    workers = [thread for thread in threading.enumerate() if thread.name == _WORKER]
    for thread in workers:
        thread.join(_IDLE_S / len(workers))
    if stuck := sum(thread.is_alive() for thread in workers):
        click.echo(f"toolpost: {stuck} synchronous tools are still running; leaving without them", err=True)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def leave_reader_alone() -> None:
    """Write nothing more to whoever has stopped reading, not even when the interpreter flushes its streams."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
