"""Exponential backoff for a server whose starts fail; after five failures in a row it is suspended until `Supervisor.start`."""

import time
from typing import Final

FIRST_S: Final = 1.0
LIMIT_S: Final = 30.0
FAILURES_LIMIT: Final = 5


class Backoff:
    def __init__(self) -> None:
        self.failures = 0
        self.is_suspended = False
        self._retry_at = 0.0
        self._failed_at = 0.0

    def note_failure(self, *, began_at: float) -> None:
        """Count a failed start; starts that ran at the same time count as one."""
        if began_at < self._failed_at:
            return
        self._failed_at = time.monotonic()
        self.failures += 1
        self.is_suspended = self.failures >= FAILURES_LIMIT
        self._retry_at = self._failed_at + min(LIMIT_S, FIRST_S * 2 ** (self.failures - 1))

    def forget(self) -> None:
        self.failures = 0
        self.is_suspended = False
        self._retry_at = 0.0

    @property
    def wait_s(self) -> float:
        """Seconds until the next start is allowed; at most 0 if it is now."""
        return self._retry_at - time.monotonic()
