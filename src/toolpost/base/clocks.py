"""Time that passes, as opposed to the time of day, which somebody may set."""

import time
from functools import cache
from pathlib import Path
from typing import Final

# Where the system has a clock that goes on while the machine sleeps, that one: a night is a night for a lease, too.
_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def steady_s() -> float:
    """Return seconds since some moment before this process began. All processes of a machine count from the same one.

    Neither a person nor NTP makes it jump.
    """
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


@cache
def boot_id() -> str:
    """Name this boot of the machine; empty where the system has no name for it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
