"""A clock that never jumps, as opposed to the time of day, which can be set."""

import time
from functools import cache
from pathlib import Path
from typing import Final

# CLOCK_BOOTTIME goes on while the machine sleeps: a lease must run out overnight, too.
_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def steady_s() -> float:
    """Return seconds since a fixed moment before this process started, the same for all processes of a machine.

    Unlike the time of day it is changed neither by a person nor by NTP.
    """
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


@cache
def boot_id() -> str:
    """Return an id of this boot of the machine; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
