"""First-in, first-out queues by key: one holder at a time for each key, and a limit on how many wait behind it."""

from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import anyio

from toolpost import QueueOverloaded

Key = TypeVar("Key", bound=Hashable)


class KeyedQueues(Generic[Key]):
    """A queue for each key that is in use; a queue that becomes empty is dropped."""

    def __init__(self, limit: int) -> None:
        """`limit` is how many may wait behind the first one of a key."""
        self._limit = limit
        self._queues: dict[Key, deque[QueuePlace[Key]]] = {}

    def __len__(self) -> int:
        return len(self._queues)

    def is_free(self, key: Key) -> bool:
        """Whether the next to join would not have to wait."""
        return key not in self._queues

    def join(self, key: Key) -> "QueuePlace[Key]":
        """Take the last place without waiting; the place must be left. Raises `QueueOverloaded` if the queue is full."""
        queue = self._queues.setdefault(key, deque())
        # The first in the queue has its turn, and does not count as waiting.
        if len(queue) > self._limit:
            raise QueueOverloaded(
                f"{len(queue) - 1} messages already wait for this conversation, or for its agent session.",
                retry_s=5,
                is_own=True,
                hint="wait for an answer before sending more",
            )
        place = QueuePlace(self, key)
        queue.append(place)
        queue[0].is_first.set()
        return place

    def leave(self, place: "QueuePlace[Key]") -> None:
        """Remove a place, wherever in its queue it is; a place that has left already is passed over."""
        queue = self._queues.get(place.key)
        if queue is None or place not in queue:
            return
        queue.remove(place)
        if queue:
            queue[0].is_first.set()
        else:
            del self._queues[place.key]


class QueuePlace(Generic[Key]):
    """A place in the queue of a key; it has to be left, whether its turn has come or not."""

    def __init__(self, queues: KeyedQueues[Key], key: Key) -> None:
        self._queues = queues
        self.key = key
        self.is_first = anyio.Event()

    def leave(self) -> None:
        """Give the turn to the next in the queue; a second call does nothing."""
        self._queues.leave(self)

    @asynccontextmanager
    async def wait_first(self) -> AsyncIterator[None]:
        """Wait for the turn and hold it until the block is left."""
        try:
            await self.is_first.wait()
            yield
        finally:
            self.leave()
