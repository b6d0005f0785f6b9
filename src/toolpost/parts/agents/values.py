"""Values that plugins exchange with conversations: what hooks receive, and the options of a prompt."""

from collections.abc import Callable
from dataclasses import dataclass

from toolpost import Caller
from toolpost.base import CallId, JsonObject, ThreadId, ToolName, TraceId
from toolpost.parts.agents.ids import AgentSessionId, TurnId
from toolpost.parts.agents.turn_events import TurnEvent

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
