"""The interface to conversations for plugins, the HTTP API and the chat, with the types of its arguments and results.

`parts/agents/service.py` implements it.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

import anyio

from toolpost.base.caller import Caller, Principal
from toolpost.base.ids import AgentSessionId, CallId, JsonObject, ThreadId, ToolName, TraceId, TurnId
from toolpost.base.turns import TurnEnded, TurnEvent
from toolpost.store.key_values import KeyValueStore
from toolpost.store.threads import Thread, ThreadMessage, Turn

Listener = Callable[[TurnEvent], None]
"""Called with each event of a turn; one that raises is not called again."""


@dataclass(frozen=True, kw_only=True)
class TurnInfo:
    """A turn, as hooks see it."""

    thread: ThreadId
    turn: TurnId
    trace_id: TraceId
    caller: Caller
    agent: str
    """Its name in the configuration; empty where no agent is configured and only plugins answer."""
    model: str | None


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A call by a conversation's agent, and its result code."""

    thread: ThreadId
    turn: TurnId | None
    """None if the agent called between turns."""
    trace_id: TraceId
    call_id: CallId
    tool: ToolName
    arguments: JsonObject
    code: str | None
    """None if it succeeded."""
    duration_ms: float


@dataclass(frozen=True, kw_only=True)
class InvokeOptions:
    """Options of a prompt."""

    agent: str | None = None
    """Its name in the configuration; None is the thread's, else the default one."""
    model: str | None = None
    session: AgentSessionId | None = None
    """The agent's session id, where there is no thread."""
    thread: ThreadId | None = None
    """For `invoke`: the thread in whose session to prompt; overrides `session`."""
    timeout_s: float | None = None
    on_event: Listener | None = None


class AcceptedTurn(Protocol):
    """A turn whose message was accepted; it runs on in the background."""

    @property
    def info(self) -> TurnInfo:
        """Its ids, caller and agent."""
        ...

    @property
    def done(self) -> anyio.Event:
        """Set when it has ended."""
        ...

    @property
    def ended(self) -> TurnEnded | None:
        """How it ended; None until `done` is set."""
        ...

    def stop(self, kind: Literal["cancelled", "timeout", "closing"], reason: str) -> None:
        """Stop it; does nothing if it is stopping already or has ended."""
        ...


class AgentInfo(Protocol):
    """An agent that answers."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        ...

    @property
    def kind(self) -> str:
        """How it is run, such as `acp` or `claude`."""
        ...

    @property
    def model(self) -> str | None:
        """The model that it is configured with; None is its own default."""
        ...


class Conversations(Protocol):
    """All conversations of a server.

    A `Principal` says in the name of which caller a method acts, and within which limits. Threads of other callers do not
    exist for it: methods that take a thread raise `NotFound` for them.
    """

    @property
    def key_values(self) -> KeyValueStore:
        """Where a plugin keeps values of each caller that survive a restart of the server."""
        ...

    # -- agents and their sessions

    @property
    def default_agent(self) -> str | None:
        """The agent that answers where none is named; None if no agent is configured."""
        ...

    def list_agents(self) -> Sequence[AgentInfo]:
        """Return the agents as configured."""
        ...

    def has_room_for(self, principal: Principal) -> bool:
        """Whether a conversation of this caller without a session would get one now, without waiting."""
        ...

    def is_warm(self, thread: ThreadId) -> bool:
        """Whether a thread has a session that is open."""
        ...

    async def prewarm(self, principal: Principal, thread: ThreadId, options: InvokeOptions | None = None) -> object:
        """Open the session that the next message of a thread will use; return once it is open."""
        ...

    # -- threads

    async def create_thread(
        self, principal: Principal, *, title: str = "", agent: str | None = None, model: str | None = None
    ) -> Thread:
        """Start a conversation; a long title is cut. Raises `QueueOverloaded` over the limit of threads."""
        ...

    async def find_thread(self, principal: Principal, thread: ThreadId) -> Thread:
        """Return a thread of this caller; raises `NotFound` for a thread of another caller, too."""
        ...

    async def list_threads(self, principal: Principal, *, before: float | None = None, limit: int = 50) -> list[Thread]:
        """Return this caller's threads that changed before a time, the latest first."""
        ...

    async def change_thread(
        self, principal: Principal, thread: ThreadId, *, title: str | None, agent: str | None, model: str | None
    ) -> Thread:
        """Change the title, agent or model of a thread; None leaves it, an empty agent or model unsets it."""
        ...

    async def delete_thread(self, principal: Principal, thread: ThreadId) -> None:
        """Delete a thread with its messages; turns that run in it are stopped first."""
        ...

    async def read_messages(
        self, principal: Principal, thread: ThreadId, *, after: int = 0, limit: int = 100
    ) -> list[ThreadMessage]:
        """Return the first messages of a thread past a `seq`, in order."""
        ...

    async def list_turns(self, principal: Principal, thread: ThreadId, *, limit: int = 50) -> list[Turn]:
        """Return the turns of a thread, the latest first."""
        ...

    # -- turns

    async def handle_message(
        self, principal: Principal, thread: ThreadId, text: str, options: InvokeOptions | None = None
    ) -> TurnEnded:
        """Answer a message, and return how its turn ended; cancelling this cancels the turn."""
        ...

    async def start_message(
        self, principal: Principal, thread: ThreadId, text: str, options: InvokeOptions | None = None
    ) -> AcceptedTurn:
        """Accept a message and return its turn, which runs on in the background. Raises at once if the message is refused."""
        ...

    async def invoke(self, principal: Principal, prompt: str, options: InvokeOptions | None = None) -> TurnEnded:
        """Prompt an agent and record nothing; no hook runs.

        It is prompted in the session of `options.thread`, else in `options.session`, else in the caller's own.
        """
        ...

    async def cancel(self, principal: Principal, thread: ThreadId, turn: TurnId | None = None) -> list[TurnId]:
        """Stop a turn of a thread, or all that have not ended; return which are being stopped.

        Raises `NotFound` if a turn is named and does not run.
        """
        ...

    def running_in(self, thread: ThreadId) -> list[TurnId]:
        """Return the turns that run or wait in a thread in this process, in order."""
        ...

    def open_listener(self, thread: ThreadId, listener: Listener) -> AbstractContextManager[None]:
        """Pass every event of a thread to a listener until the block is left; access is not checked."""
        ...

    def acting_principal(self, thread: ThreadId) -> Principal | None:
        """Return the caller in whose name the agent of a thread acts, with its limits; None while no turn runs."""
        ...
