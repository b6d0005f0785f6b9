"""Requests with a token that is refused: counted, and logged so that probing is seen and the log is not flooded."""

import logging
import time
from typing import Final

from toolpost.base.events import event
from toolpost.metrics import Counter

_log = logging.getLogger("toolpost.access")

INTERVAL_S: Final = 10.0
"""At most one line in this time; it says how many requests it stands for."""


class RejectedTokens:
    """Notes of requests whose token was refused. The token itself is never logged."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._unlogged = 0
        self._next_at = 0.0

    def note(self, path: str, reason: str) -> None:
        """Count a request, and log it unless one was logged just before."""
        self._counter.add()
        self._unlogged += 1
        if (now := time.monotonic()) >= self._next_at:
            self._next_at = now + INTERVAL_S
            count, self._unlogged = self._unlogged, 0
            event(_log, logging.WARNING, "token refused", path=path[:200], reason=reason, requests=count)
