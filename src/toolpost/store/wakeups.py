"""Wake-ups: who waits for something to happen in the store is told, here at once, elsewhere within milliseconds.

A wake-up is a hint, not a message. Whoever is woken looks; whoever cannot afford to miss one also looks now and then.
"""

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol


class Wake(StrEnum):
    """Why a listener was woken."""

    RUNG = "rung"
    PERHAPS = "perhaps"
    """Something may have been missed: the connection was lost for a while."""


class Listener:
    """Waits for one topic. Many rings before it looks are one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._wake = Wake.RUNG

    def wake(self, wake: Wake) -> None:
        """Have `wait` return, now or when it is next called."""
        if not self._event.is_set() or wake is Wake.PERHAPS:
            self._wake = wake
        self._event.set()

    async def wait(self) -> Wake:
        """Return when there is something to look for."""
        await self._event.wait()
        self._event.clear()
        return self._wake


class Wakeups(Protocol):
    """The bells of a store, by topic."""

    def ring(self, topic: str) -> None:
        """Wake whoever listens, in every process that shares the store. To be called once the change is committed."""
        ...

    def open_listener(self, topic: str) -> AbstractAsyncContextManager[Listener]:
        """Listen; what is rung from now on is heard."""
        ...


@lru_cache(maxsize=4_096)
def name_of(topic: str) -> str:
    """Return what a topic is called on its way: whatever it holds and however long it is, this is short and plain."""
    return blake2b(topic.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class Listeners:
    """Those who listen in this process, by the names of their topics."""

    def __init__(self) -> None:
        self._by_name: dict[str, set[Listener]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def join(self, name: str) -> Listener:
        """Be among them."""
        listener = Listener()
        self._by_name.setdefault(name, set()).add(listener)
        return listener

    def leave(self, name: str, listener: Listener) -> None:
        """Be no longer among them."""
        others = self._by_name[name]
        others.discard(listener)
        if not others:
            del self._by_name[name]

    def wake(self, names: Iterable[str]) -> None:
        """Wake those who listen to one of these."""
        for name in names:
            for listener in self._by_name.get(name, ()):
                listener.wake(Wake.RUNG)

    def wake_all(self) -> None:
        """Tell everybody that something may have been missed."""
        for listeners in self._by_name.values():
            for listener in listeners:
                listener.wake(Wake.PERHAPS)
