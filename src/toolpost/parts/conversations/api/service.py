"""What the API of conversations asks of whoever leads them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol

import anyio

from toolpost.authoring.conversation import InvokeOptions, Listener, TurnInfo
from toolpost.base.caller import Principal
from toolpost.base.ids import ThreadId, TurnId
from toolpost.base.turns import TurnEnded
from toolpost.store.threads import Message, Thread, Turn


class Run(Protocol):
    """A turn that was accepted."""

    @property
    def info(self) -> TurnInfo:
        """Which it is."""
        ...

    @property
    def done(self) -> anyio.Event:
        """Set when it has ended."""
        ...

    @property
    def ended(self) -> TurnEnded | None:
        """How, once it has."""
        ...

    def stop(self, kind: Literal["cancelled", "timeout", "closing"], reason: str) -> None:
        """Have it end."""
        ...


class Somebody(Protocol):
    """Who answers."""

    @property
    def name(self) -> str:
        """What they are called."""
        ...

    @property
    def kind(self) -> str:
        """How they are spoken to."""
        ...

    @property
    def model(self) -> str | None:
        """What they use."""
        ...


class Talks(Protocol):
    """All conversations."""

    @property
    def default_agent(self) -> str | None:
        """Who answers where nobody is named."""
        ...

    def list_agents(self) -> Sequence[Somebody]:
        """Return everybody who answers."""
        ...

    async def create_thread(
        self, standing: Principal, *, title: str = "", agent: str | None = None, model: str | None = None
    ) -> Thread:
        """Begin a conversation."""
        ...

    async def find_thread(self, standing: Principal, thread: ThreadId) -> Thread:
        """Return a thread of this caller's."""
        ...

    async def list_threads(self, standing: Principal, *, before: float | None = None, limit: int = 50) -> list[Thread]:
        """Return this caller's threads."""
        ...

    async def change_thread(
        self, standing: Principal, thread: ThreadId, *, title: str | None, agent: str | None, model: str | None
    ) -> Thread:
        """Change a thread."""
        ...

    async def delete_thread(self, standing: Principal, thread: ThreadId) -> None:
        """Forget a thread."""
        ...

    async def read_messages(
        self, standing: Principal, thread: ThreadId, *, after: int = 0, limit: int = 100
    ) -> list[Message]:
        """Return what was said in a thread."""
        ...

    async def list_turns(self, standing: Principal, thread: ThreadId, *, limit: int = 50) -> list[Turn]:
        """Return a thread's turns."""
        ...

    async def start_message(
        self, standing: Principal, thread: ThreadId, text: str, options: InvokeOptions | None = None
    ) -> Run:
        """Accept a message."""
        ...

    async def cancel(self, standing: Principal, thread: ThreadId, turn: TurnId | None = None) -> list[TurnId]:
        """Stop turns of a thread."""
        ...

    async def prewarm(self, standing: Principal, thread: ThreadId, options: InvokeOptions | None = None) -> object:
        """Have the session of a thread ready."""
        ...

    def running_in(self, thread: ThreadId) -> list[TurnId]:
        """Return the turns that run or wait in a thread."""
        ...

    def is_warm(self, thread: ThreadId) -> bool:
        """Whether a thread has a session that is ready."""
        ...

    def listening(self, thread: ThreadId, listener: Listener) -> AbstractContextManager[None]:
        """Have somebody told all that happens in a thread, while this lasts."""
        ...
