"""Who runs a turn: a process of some machine, and whether it is still there."""

import os
import socket
from typing import Final

import psutil

from toolpost.store.threads import Turn
from toolpost.upstreams.process.tree import birth_of

STALE_S: Final = 60.0
"""After this long without a sign of life, a process of another machine is taken to have ended."""


def own_name() -> str:
    """Name this process: no other one, now or later, is called the same."""
    return f"{socket.gethostname()}/{os.getpid()}/{birth_of(psutil.Process()):.2f}"


def has_ended(turn: Turn, *, silent_s: float) -> bool:
    """Say whether the process that ran a turn is there no more; `silent_s` is how long we have seen no sign of life of it."""
    host, _, rest = turn.runner.rpartition("/")[0].rpartition("/")
    started = turn.runner.rpartition("/")[2]
    if host != socket.gethostname():
        # Not by the time that it has written down: its clock and ours may differ, and either may jump.
        return silent_s >= STALE_S
    try:
        return f"{birth_of(psutil.Process(int(rest))):.2f}" != started
    except (psutil.Error, ValueError):
        return True
