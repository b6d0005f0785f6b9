"""A queue in which nobody overtakes, and which takes no more than its limit."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from toolpost.contracts.errors import QueueOverloaded


class Line:
    """One at a time, in the order in which they came."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._is_held = False
        self._waiting: deque[anyio.Event] = deque()

    @property
    def is_free(self) -> bool:
        """Whether nobody is in it."""
        return not self._is_held and not self._waiting

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    def join(self) -> "Place":
        """Take the last place, at once; a line that is full takes nobody."""
        if not self._is_held:
            self._is_held = True
            return Place(self, None)
        if len(self._waiting) >= self._limit:
            raise QueueOverloaded(
                f"{len(self._waiting)} messages wait for this conversation already.",
                retry_s=5,
                is_own=True,
                hint="wait for an answer before sending more",
            )
        event = anyio.Event()
        self._waiting.append(event)
        return Place(self, event)

    def leave(self, event: anyio.Event | None) -> None:
        """Let the next one have its turn; whoever leaves before theirs only makes the line shorter."""
        if event is not None and event in self._waiting:
            self._waiting.remove(event)
        elif self._waiting:
            self._waiting.popleft().set()
        else:
            self._is_held = False


class Place:
    """A place in a line; to be left, whether its turn has come or not."""

    def __init__(self, line: Line, event: anyio.Event | None) -> None:
        self._line = line
        self._event = event
        self._is_left = False

    async def wait(self) -> None:
        """Wait for one's turn."""
        if self._event is not None:
            await self._event.wait()

    def leave(self) -> None:
        """Let the next one have its turn; a second time does nothing."""
        if not self._is_left:
            self._is_left = True
            self._line.leave(self._event)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for one's turn, and have it until this is left."""
        try:
            await self.wait()
            yield
        finally:
            self.leave()
