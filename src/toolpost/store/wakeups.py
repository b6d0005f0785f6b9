"""Wake-ups: a waiter is woken when something was committed, in this process at once, in others within milliseconds.

A wake-up is a hint, not a message: a listener that is woken reads the store, and one that must not miss a change also reads it
at intervals.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Final, Protocol

_SHORT_TOPIC: Final = 256


class Wake(StrEnum):
    """Why a listener was woken."""

    RUNG = "rung"
    MAYBE_MISSED = "maybe_missed"
    """Something may have been missed: the connection was lost for a while."""


class Listener:
    """Waits for its topics. Several rings before the next `wait` are one."""

    __slots__ = ("_pending", "_waiting")

    def __init__(self) -> None:
        self._pending: Wake | None = None
        self._waiting: asyncio.Future[None] | None = None

    def wake(self, wake: Wake) -> None:
        """Have `wait` return, now or when it is next called."""
        if self._pending is None or wake is Wake.MAYBE_MISSED:
            self._pending = wake
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def wait(self) -> Wake:
        """Return when a topic was rung, at once if that was since the last call. Only one task may wait."""
        while self._pending is None:
            # Made only now: most listeners are closed without waiting.
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        pending, self._pending = self._pending, None
        return pending


class Wakeups(Protocol):
    """The wake-ups of a store, by topic."""

    def ring(self, topic: str) -> None:
        """Wake the listeners of a topic in every process of the store. To be called once the change is committed."""
        ...

    def open_listener(self, *topics: str) -> AbstractAsyncContextManager[Listener]:
        """Listen to these topics; rings from now on wake the listener."""
        ...


def encode_topic(topic: str) -> str:
    """Return a short ASCII name of a topic, which may be of any length and contain any character."""
    # The cache holds its keys: only short ones go into it.
    return _encode_short(topic) if len(topic) <= _SHORT_TOPIC else _encode_short.__wrapped__(topic)


@lru_cache(maxsize=4_096)
def _encode_short(topic: str) -> str:
    return blake2b(topic.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class Listeners:
    """The listeners of this process, by the names of their topics."""

    def __init__(self) -> None:
        self._by_name: dict[str, set[Listener]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def join(self, names: Sequence[str]) -> Listener:
        """Add a listener to these topics."""
        listener = Listener()
        for name in names:
            self._by_name.setdefault(name, set()).add(listener)
        return listener

    def leave(self, names: Sequence[str], listener: Listener) -> None:
        """Remove a listener from these topics, each of which it listens to."""
        # A topic may be named twice.
        for name in set(names):
            others = self._by_name[name]
            others.discard(listener)
            if not others:
                del self._by_name[name]

    def wake(self, names: Iterable[str]) -> None:
        """Wake the listeners of these topics."""
        for name in names:
            for listener in self._by_name.get(name, ()):
                listener.wake(Wake.RUNG)

    def wake_all(self) -> None:
        """Wake every listener: it may have missed a ring."""
        for listeners in self._by_name.values():
            for listener in listeners:
                listener.wake(Wake.MAYBE_MISSED)
