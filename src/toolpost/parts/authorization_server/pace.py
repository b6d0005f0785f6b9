"""How often strangers may have a row written: a client that registers itself, a login that a browser begins.

The tables have limits of their own, beyond which the oldest rows go. The pace keeps one address from replacing all the others in
the ten minutes that a login takes.
"""

import time
from collections import Counter
from typing import Final

WINDOW_S: Final = 600.0
REGISTRATIONS: Final = 100
LOGINS: Final = 300
"""How many of each one address may begin within this time."""
TOTAL: Final = 5_000
"""The same of all addresses together: half of what the tables keep."""


class Pace:
    """Counts in windows of ten minutes, at this gateway. It keeps no more addresses than `TOTAL`."""

    def __init__(self, limit: int) -> None:
        """`limit` is that of one address."""
        self._limit = limit
        self._counts: Counter[str] = Counter()
        self._taken = 0
        self._ends_at = 0.0

    def take(self, address: str) -> float:
        """Count one; returns 0, or in how many seconds to try again, and then it is not counted."""
        now = time.monotonic()
        if now >= self._ends_at:
            self._counts.clear()
            self._taken, self._ends_at = 0, now + WINDOW_S
        if self._taken >= TOTAL or self._counts[address] >= self._limit:
            return self._ends_at - now
        self._counts[address] += 1
        self._taken += 1
        return 0.0
