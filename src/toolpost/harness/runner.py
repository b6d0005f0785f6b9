"""Who runs a turn: a process of some machine, and whether it is still there."""

import os
import socket
import time
from typing import Final

import psutil

from toolpost.store.threads import Turn

STALE_S: Final = 60.0
"""After this long without a sign of life, a process of another machine is taken to have ended."""


def own_name() -> str:
    """Name this process: no other one, now or later, is called the same."""
    return f"{socket.gethostname()}/{os.getpid()}/{psutil.Process().create_time():.2f}"


def has_ended(turn: Turn) -> bool:
    """Say whether the process that ran a turn is there no more."""
    host, _, rest = turn.runner.rpartition("/")[0].rpartition("/")
    started = turn.runner.rpartition("/")[2]
    if host != socket.gethostname():
        return time.time() - turn.alive_at > STALE_S
    try:
        return f"{psutil.Process(int(rest)).create_time():.2f}" != started
    except (psutil.Error, ValueError):
        return True
