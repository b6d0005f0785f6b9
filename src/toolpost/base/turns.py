"""What happens in a turn, as values: what an agent says and does, and what whoever listens is told."""

from typing import Final, Literal

import msgspec

from toolpost.base.ids import AgentSessionId, Json, JsonObject, ThreadId, TraceId, TurnId

TurnState = Literal["running", "done", "failed", "cancelled", "interrupted"]
"""`cancelled`: somebody asked for it. `interrupted`: the server ended, or was killed, meanwhile."""

EndReason = Literal["done", "cancelled", "refused", "limit"]
"""Why an agent stopped: it had said all, was told to, would not, or had said all that it may."""


class _Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", omit_defaults=True):
    """Anything that happens."""


class TextChunk(_Event, frozen=True, kw_only=True, tag="text"):
    """A piece of the answer."""

    text: str


class ThoughtChunk(_Event, frozen=True, kw_only=True, tag="thought"):
    """A piece of what the agent thinks on the way to it."""

    text: str


class ToolUsed(_Event, frozen=True, kw_only=True, tag="tool"):
    """A tool as the agent uses it: once when it starts, and again whenever more is known."""

    id: str
    tool: str
    state: Literal["running", "done", "failed"]
    arguments: Json = None
    result: str | None = None


class AgentEnd(_Event, frozen=True, kw_only=True, tag="end"):
    """The end of an agent's stream; there is exactly one, and nothing after it."""

    reason: EndReason = "done"
    session: AgentSessionId | None = None
    """What the agent calls its session by now, where that has changed."""
    usage: JsonObject | None = None


AgentEvent = TextChunk | ThoughtChunk | ToolUsed | AgentEnd
"""What an agent's stream consists of."""


class TurnStarted(_Event, frozen=True, kw_only=True, tag="started"):
    """A turn has begun: its message is kept."""

    turn: TurnId
    thread: ThreadId
    trace_id: TraceId
    seq: int
    """The number of the message in its thread."""


class SessionReady(_Event, frozen=True, kw_only=True, tag="session"):
    """The agent's session is there."""

    is_warm: bool
    told: int = 0
    """How many messages of the thread it had to be told first."""


class Heartbeat(_Event, frozen=True, kw_only=True, tag="beat"):
    """The agent is at work, and has said nothing for a while."""


class TurnEnded(_Event, frozen=True, kw_only=True, tag="ended"):
    """The end of a turn; there is exactly one, and nothing after it."""

    turn: TurnId
    thread: ThreadId
    trace_id: TraceId
    state: TurnState
    text: str = ""
    """The whole answer, or as much of it as came."""
    seq: int | None = None
    """The number of the answer in its thread, if any of it came."""
    reason: EndReason | None = None
    error: JsonObject | None = None
    usage: JsonObject | None = None


TurnEvent = TurnStarted | SessionReady | TextChunk | ThoughtChunk | ToolUsed | Heartbeat | TurnEnded
"""What whoever listens to a turn is told, in this order: started, whatever comes, ended."""

encode_event: Final = msgspec.json.Encoder().encode
