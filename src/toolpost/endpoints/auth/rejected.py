"""Requests with a token that is refused: counted, and logged so that probing is seen and the log is not flooded."""

import logging

from toolpost.base.events import event
from toolpost.base.log_limit import LogLimit
from toolpost.metrics import Counter

_log = logging.getLogger("toolpost.access")


class RejectedTokens:
    """Notes of requests whose token was refused. The token itself is never logged."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._limit = LogLimit(lines=1)

    def note(self, path: str, reason: str) -> None:
        """Count a request, and log it unless one was logged just before."""
        self._counter.add()
        if count := self._limit.take():
            event(_log, logging.WARNING, "token refused", path=path[:200], reason=reason, requests=count)
