"""The events of a turn of a conversation: what an agent streams, and what listeners receive."""

from typing import Final, Literal

import msgspec

from toolpost.base import Json, JsonObject, ThreadId, TraceId
from toolpost.parts.agents.ids import AgentSessionId, TurnId

TurnState = Literal["running", "done", "failed", "cancelled", "interrupted"]
"""`cancelled`: on request. `interrupted`: the server ended, or was killed, during the turn."""

EndReason = Literal["done", "cancelled", "refused", "limit"]
"""Why an agent stopped: it was done, was cancelled, refused, or reached a limit."""


class _Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", omit_defaults=True):
    pass


class TextChunk(_Event, frozen=True, kw_only=True, tag="text"):
    """A piece of the answer."""

    text: str


class ThoughtChunk(_Event, frozen=True, kw_only=True, tag="thought"):
    """A piece of the agent's reasoning."""

    text: str


class ToolUsed(_Event, frozen=True, kw_only=True, tag="tool"):
    """A tool call of the agent: sent when it starts, and again whenever more is known."""

    id: str
    tool: str
    state: Literal["running", "done", "failed"]
    arguments: Json = None
    result: str | None = None


class AgentEnd(_Event, frozen=True, kw_only=True, tag="end"):
    """The end of an agent's stream: exactly one, and nothing after it."""

    reason: EndReason = "done"
    session: AgentSessionId | None = None
    """The agent's new id for its session, if that has changed."""
    usage: JsonObject | None = None


AgentEvent = TextChunk | ThoughtChunk | ToolUsed | AgentEnd
"""What an agent's stream consists of."""


class TurnStarted(_Event, frozen=True, kw_only=True, tag="started"):
    """The turn has begun, and its message is stored."""

    turn: TurnId
    thread: ThreadId
    trace_id: TraceId
    seq: int
    """The number of the message in its thread."""


class SessionReady(_Event, frozen=True, kw_only=True, tag="session"):
    """The agent's session is open."""

    is_warm: bool
    replayed: int = 0
    """How many messages of the thread were replayed to it first."""


class Heartbeat(_Event, frozen=True, kw_only=True, tag="beat"):
    """The agent is working, and has sent nothing for a while."""


class TurnEnded(_Event, frozen=True, kw_only=True, tag="ended"):
    """The end of a turn: exactly one, and nothing after it."""

    turn: TurnId
    thread: ThreadId
    trace_id: TraceId
    state: TurnState
    text: str = ""
    """The whole answer, or as much as arrived."""
    seq: int | None = None
    """The number of the answer in its thread, if any of it arrived."""
    reason: EndReason | None = None
    error: JsonObject | None = None
    usage: JsonObject | None = None


TurnEvent = TurnStarted | SessionReady | TextChunk | ThoughtChunk | ToolUsed | Heartbeat | TurnEnded
"""What listeners of a turn receive, in this order: started, anything, ended."""

encode_event: Final = msgspec.json.Encoder().encode
