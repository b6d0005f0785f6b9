"""Ending the process, also while threads are stuck or the reader of stdout is gone."""

import os
import sys
import threading
from typing import Final, NoReturn

import click

from toolpost.base.ids import TOOL_THREAD

_WORKER: Final = "AnyIO worker thread"
_IDLE_S: Final = 0.5
"""Idle threads end much faster."""


def exit_process(code: int) -> NoReturn:
    """End the process even if a synchronous tool is stuck in its thread; its call has already been answered."""
    workers = [thread for thread in threading.enumerate() if thread.name.startswith((_WORKER, TOOL_THREAD))]
    for thread in workers:
        thread.join(_IDLE_S / len(workers))
    if stuck := [thread.name for thread in workers if thread.is_alive()]:
        # Other worker threads only prepare something, and nothing waits for them.
        tools = [name.removeprefix(TOOL_THREAD) for name in stuck if name.startswith(TOOL_THREAD)]
        if tools:
            click.echo(f"toolpost: exiting while tools still run in a thread: {', '.join(tools)}", err=True)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def silence_stdout() -> None:
    """Redirect stdout to the null device after a broken pipe, so that the interpreter's flush at exit cannot fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
