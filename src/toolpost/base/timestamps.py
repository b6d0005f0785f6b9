"""Times of the wall clock as text: ISO 8601 in UTC, with `Z`."""

import time
from functools import lru_cache


def format_time(at: float) -> str:
    """Format a Unix time with milliseconds. Cached: under load, calls share a millisecond."""
    # Rounded first: a time that was read from such a text may be a little less than its millisecond.
    return _format_millisecond(round(at * 1_000_000) // 1000)


def format_second(at: float) -> str:
    """Format a Unix time without fractions of a second."""
    return f"{_format_second(int(at))}Z"


@lru_cache(maxsize=4)
def _format_millisecond(at_ms: int) -> str:
    return f"{_format_second(at_ms // 1000)}.{at_ms % 1000:03d}Z"


@lru_cache(maxsize=4)
def _format_second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
