"""What an agent is to the harness: opened, prompted, cancelled, asked whether it is there, closed. Nothing else is asked."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from toolpost.base.caller import GatewayAccess
from toolpost.base.ids import AgentSessionId, JsonObject, ThreadId
from toolpost.base.turns import AgentEnd, AgentEvent
from toolpost.contracts.errors import SourceError, UpstreamUnavailable

Permissions = Literal["deny", "read", "allow"]
"""What an agent gets that asks whether it may: nothing, what only looks, or everything. The gateway's tools it may always use."""


class AgentGone(UpstreamUnavailable):
    """The agent's session has closed."""


class AgentOutputTooLong(AgentGone):
    """The agent wrote more than is read of it; it is not asked again, because it has done its work and would do it twice."""


@dataclass(frozen=True, kw_only=True)
class SessionOrder:
    """What a session is opened with."""

    thread: ThreadId | None
    model: str | None
    cwd: Path
    permissions: Permissions
    door: GatewayAccess | None
    """None where no gateway is served: the agent then has its own tools alone."""
    resume: AgentSessionId | None
    """The session to go on with, by the agent's own name for it; an agent that cannot opens another one."""
    on_gone: Callable[[str], None]
    """To be told when the session has ended by itself, and why."""


class AgentSession(Protocol):
    """One conversation with an agent. One prompt at a time."""

    @property
    def id(self) -> AgentSessionId | None:
        """What the agent calls it; None if it cannot be resumed by that."""
        ...

    @property
    def is_resumed(self) -> bool:
        """Whether it goes on where the ordered one stopped."""
        ...

    def prompt(self, text: str) -> AsyncGenerator[AgentEvent, None]:
        """Ask; the stream ends with exactly one `AgentEnd`, or raises: `AgentGone` if the session has closed."""
        ...

    async def cancel(self) -> None:
        """Tell the agent to stop; the stream then ends by itself, with an agent that listens."""
        ...

    async def ping(self) -> None:
        """Return if the agent is there; raises `AgentGone` if not."""
        ...


class Agent(Protocol):
    """A kind of agent, ready to be opened; leaving what `open` returns closes the session, and whatever it started."""

    def open(self, order: SessionOrder) -> AbstractAsyncContextManager[AgentSession]:
        """Open a session."""
        ...


@dataclass(frozen=True, kw_only=True)
class AgentSpec:
    """An agent as configured, its variables filled in."""

    name: str
    kind: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    cwd: Path = field(default_factory=Path.cwd)
    model: str | None = None
    permissions: Permissions = "read"
    tags: frozenset[str] | None = None
    tools: tuple[str, ...] | None = None
    timeout_s: float = 600.0
    options: JsonObject = field(default_factory=dict, hash=False)
    """What the kind of agent knows further settings by."""
    problem: str | None = None
    """Why it cannot be started as it is configured; None if it can be."""
    hint: str | None = None
    """What can be done about the problem."""


async def one_end(stream: AsyncGenerator[AgentEvent, None]) -> AsyncGenerator[AgentEvent, None]:
    """Pass a stream on, and hold it to its promise: one end, and nothing after it."""
    has_ended = False
    async with aclosing(stream):
        async for event in stream:
            if has_ended:
                raise SourceError("The agent went on after the end of its answer.")
            has_ended = isinstance(event, AgentEnd)
            yield event
    if not has_ended:
        raise AgentGone("The agent stopped in the middle of its answer.")
