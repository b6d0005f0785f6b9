"""What a plugin is told of conversations, and how it leads one itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from toolpost.base.caller import Caller, Principal
from toolpost.base.ids import AgentSessionId, CallId, JsonObject, ThreadId, ToolName, TraceId, TurnId
from toolpost.base.turns import TurnEnded, TurnEvent
from toolpost.store.key_values import KeyValueStore
from toolpost.store.threads import Message, Thread

Listener = Callable[[TurnEvent], None]
"""Is told what happens in a turn, as it happens."""


@dataclass(frozen=True, kw_only=True)
class TurnInfo:
    """A turn, as hooks see it."""

    thread: ThreadId
    turn: TurnId
    trace_id: TraceId
    caller: Caller
    agent: str
    """The name that the configuration has for it; empty where nobody answers but plugins."""
    model: str | None


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A call that a conversation's agent made, and what came of it."""

    thread: ThreadId
    turn: TurnId | None
    """None if the agent called when it was not its turn."""
    trace_id: TraceId
    call_id: CallId
    tool: ToolName
    arguments: JsonObject
    code: str | None
    """None if it succeeded."""
    duration_ms: float


@dataclass(frozen=True, kw_only=True)
class InvokeOptions:
    """How an agent is to be asked."""

    agent: str | None = None
    """Its name in the configuration; None is the thread's, else the default one."""
    model: str | None = None
    session: AgentSessionId | None = None
    """The agent's own name for a session, where there is no thread."""
    thread: ThreadId | None = None
    """The thread in whose session to ask where nothing is to be kept (`invoke`); it comes before `session`."""
    timeout_s: float | None = None
    on_event: Listener | None = None


class Conversations(Protocol):
    """All conversations of a server, for a plugin that leads one itself, in the name of a caller."""

    @property
    def key_values(self) -> KeyValueStore:
        """Where a plugin keeps values of each caller that survive a restart of the server."""
        ...

    @property
    def shelf(self) -> KeyValueStore:
        """Deprecated name of `key_values`; reading it warns with `DeprecationWarning`."""
        ...

    def has_room_for(self, standing: Principal) -> bool:
        """Whether a conversation of this caller that has no session yet would get one now, without waiting for others."""
        ...

    def standing_in(self, thread: ThreadId) -> Principal | None:
        """Say in whose name the agent of a thread acts, and what they may; None if it is not its turn."""
        ...

    async def create_thread(
        self, standing: Principal, *, title: str = "", agent: str | None = None, model: str | None = None
    ) -> Thread:
        """Begin a conversation."""
        ...

    async def find_thread(self, standing: Principal, thread: ThreadId) -> Thread:
        """Return a thread of this caller's; anybody else's is not there."""
        ...

    async def list_threads(self, standing: Principal, *, before: float | None = None, limit: int = 50) -> list[Thread]:
        """Return this caller's threads, those that changed last first."""
        ...

    async def read_messages(
        self, standing: Principal, thread: ThreadId, *, after: int = 0, limit: int = 100
    ) -> list[Message]:
        """Return what was said in a thread."""
        ...

    async def handle_message(
        self, standing: Principal, thread: ThreadId, text: str, options: InvokeOptions | None = None
    ) -> TurnEnded:
        """Answer a message, and return how that ended. Whoever is cancelled while waiting for it cancels the turn."""
        ...

    async def invoke(self, standing: Principal, prompt: str, options: InvokeOptions | None = None) -> TurnEnded:
        """Ask an agent and keep nothing: in the session of a thread, else in one that is named, else in the caller's own."""
        ...

    async def cancel(self, standing: Principal, thread: ThreadId, turn: TurnId | None = None) -> list[TurnId]:
        """Stop a turn of a thread, or all that have not ended; returns which were."""
        ...

    async def delete_thread(self, standing: Principal, thread: ThreadId) -> None:
        """Forget a thread; a turn that runs in it is stopped."""
        ...
