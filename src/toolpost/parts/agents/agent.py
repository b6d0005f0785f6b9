"""The interface of an agent: open a session, prompt, cancel, ping, close. `acp_agent` and `claude_agent` implement it."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from toolpost import ToolFailed, UpstreamUnavailable
from toolpost.base import JsonObject, ThreadId
from toolpost.parts import GatewayAccess
from toolpost.parts.agents.ids import AgentSessionId
from toolpost.parts.agents.turn_events import AgentEnd, AgentEvent

Permissions = Literal["deny", "read", "allow"]
"""Which of its own tools an agent may use: none, read-only ones, or all. The gateway's tools are always allowed."""


class AgentGone(UpstreamUnavailable):
    """The agent's session has closed."""


class AgentOutputTooLong(AgentGone):
    """The agent wrote more than the limit. It is not prompted again: it has done its work, and would do it twice."""


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """The options that a session is opened with."""

    thread: ThreadId | None
    model: str | None
    cwd: Path
    permissions: Permissions
    gateway: GatewayAccess | None
    """URL and token of the gateway; None where it is not served over HTTP, and the agent has only its own tools."""
    resume: AgentSessionId | None
    """The agent's id of the session to resume; an agent that cannot resume it opens another one."""
    on_gone: Callable[[str], None]
    """Called with the reason if the session ends before it is closed."""


class AgentSession(Protocol):
    """One conversation with an agent, one prompt at a time."""

    @property
    def id(self) -> AgentSessionId | None:
        """The agent's id of the session; None if it cannot be resumed."""
        ...

    @property
    def is_resumed(self) -> bool:
        """Whether it resumed `SessionOptions.resume`."""
        ...

    def prompt(self, text: str) -> AsyncGenerator[AgentEvent, None]:
        """Send a prompt; the stream ends with exactly one `AgentEnd`, or raises: `AgentGone` if the session has closed."""
        ...

    async def cancel(self) -> None:
        """Request that the agent stop; the stream of an agent that complies then ends with an `AgentEnd`."""
        ...

    async def ping(self) -> None:
        """Raise `AgentGone` if the agent no longer runs."""
        ...


class Agent(Protocol):
    """An agent that sessions can be opened with."""

    def open(self, session_options: SessionOptions) -> AbstractAsyncContextManager[AgentSession]:
        """Open a session; leaving closes it with every process that it started."""
        ...


@dataclass(frozen=True, kw_only=True)
class AgentSpec:
    """An agent as configured, with its variables replaced."""

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
    """Further settings of this kind of agent."""
    problem: str | None = None
    """Why it cannot be started as configured; None if it can."""
    hint: str | None = None
    """How to fix the problem."""


async def enforce_single_end(stream: AsyncGenerator[AgentEvent, None]) -> AsyncGenerator[AgentEvent, None]:
    """Pass events on; raises `ToolFailed` for one after `AgentEnd`, and `AgentGone` for a stream without it."""
    has_ended = False
    async with aclosing(stream):
        async for event in stream:
            if has_ended:
                raise ToolFailed("The agent went on after the end of its answer.")
            has_ended = isinstance(event, AgentEnd)
            yield event
    if not has_ended:
        raise AgentGone("The agent stopped in the middle of its answer.")


def unwrap_group(error: Exception) -> Exception:
    """Return the first exception of a group, and any other exception as it is; the others of a group are not of interest."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
