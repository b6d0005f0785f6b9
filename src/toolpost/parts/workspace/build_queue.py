"""Whose turn it is to build: what callers ask for comes first, and one build at a time is done in the background."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio


class Turns:
    """Builds of one workspace, by repository."""

    def __init__(self) -> None:
        self._asked_for: Counter[str] = Counter()
        self._ended = anyio.Event()
        self._background = anyio.Lock()

    @contextmanager
    def taken(self, name: str) -> Iterator[None]:
        """Build for a caller."""
        self._asked_for[name] += 1
        try:
            yield
        finally:
            self._asked_for[name] -= 1
            self._ended.set()
            self._ended = anyio.Event()

    @asynccontextmanager
    async def spared(self, name: str) -> AsyncIterator[None]:
        """Build in the background, once no caller has this repository built."""
        async with self._background:
            while self._asked_for[name]:
                await self._ended.wait()
            yield
