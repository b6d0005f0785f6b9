"""A bound on how many may be in at once: who comes when it is full is told so, and does not wait."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from toolpost.contracts.errors import QueueOverloaded


class Gate:
    """Lets so many pass at once, from any thread."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._inside = 0
        self._lock = threading.Lock()

    @contextmanager
    def passed(self) -> Iterator[None]:
        """Be inside, or be turned away."""
        with self._lock:
            if self._inside >= self.limit:
                raise QueueOverloaded(
                    f"{self.limit} calls of the workspace are in flight.",
                    limit=self.limit,
                )
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
