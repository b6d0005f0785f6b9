"""Limited log lines: events that strangers can cause at any rate must not fill the log."""

import time
from dataclasses import dataclass
from typing import Final

INTERVAL_S: Final = 10.0
"""The time for which lines are limited."""
TOOL_LINES: Final = 100
"""Lines of one kind about the tools of one server in that time: it may list 20,000, and change all of them again and again."""
KEYS_LIMIT: Final = 256
"""Keys with a limit of their own; beyond them, keys share one."""


@dataclass
class _Interval:
    ends_at: float = 0.0
    lines: int = 0
    unlogged: int = 0


class LogLimit:
    """At most so many log lines of a key in ten seconds; the next line counts the lines left out."""

    def __init__(self, *, lines: int) -> None:
        self._lines = lines
        self._intervals: dict[str, _Interval] = {}

    def take(self, key: str = "") -> int:
        """Note an occurrence; return how many occurrences a line stands for that is due now, 0 if none is due."""
        now = time.monotonic()
        interval = self._find(key, now)
        if now >= interval.ends_at:
            interval.ends_at, interval.lines = now + INTERVAL_S, 0
        interval.unlogged += 1
        if interval.lines >= self._lines:
            return 0
        interval.lines += 1
        count, interval.unlogged = interval.unlogged, 0
        return count

    def _find(self, key: str, now: float) -> _Interval:
        if (found := self._intervals.get(key)) is not None:
            return found
        if len(self._intervals) >= KEYS_LIMIT:
            self._intervals = {k: interval for k, interval in self._intervals.items() if now < interval.ends_at}
        return self._intervals.setdefault(key if len(self._intervals) < KEYS_LIMIT else "", _Interval())
