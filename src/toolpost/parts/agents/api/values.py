"""The JSON of the conversations API: bodies of requests and of responses. Class names are those of the OpenAPI schemas."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from toolpost.base import JsonObject, format_time
from toolpost.parts.agents.threads import Thread, ThreadMessage, Turn
from toolpost.parts.agents.turn_events import TurnState


class _Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The body of a request."""


class _Shown(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The body of a response, or a part of one; fields with their default are omitted."""


class NewThread(_Body, frozen=True, kw_only=True):
    """A conversation to start."""

    title: Annotated[str, Meta(max_length=80)] = ""
    agent: Annotated[str | None, Meta(description="agent that answers; the default agent, if not set")] = None
    model: str | None = None


class ThreadChange(_Body, frozen=True, kw_only=True):
    """Changes to a thread; absent fields stay as they are."""

    title: Annotated[str, Meta(max_length=80)] | None = None
    agent: Annotated[str | UnsetType | None, Meta(description="agent that answers; null is the default agent")] = UNSET
    model: Annotated[
        str | UnsetType | None,
        Meta(description="null is the agent's default; a change of the agent alone resets the model, too"),
    ] = UNSET


class NewMessage(_Body, frozen=True, kw_only=True):
    """A message to send."""

    text: Annotated[str, Meta(min_length=1)]
    agent: Annotated[
        str | None, Meta(description="agent that answers this message; the thread's agent, if not set")
    ] = None
    model: str | None = None
    timeout_s: Annotated[float, Meta(gt=0, le=86_400)] | None = None
    on_disconnect: Annotated[
        Literal["cancel", "continue"], Meta(description="whether the turn is cancelled if the client disconnects")
    ] = "cancel"


class Cancellation(_Body, frozen=True, kw_only=True):
    """The turn to cancel; without one, all that run or wait in the thread."""

    turn: str | None = None


class Prewarming(_Body, frozen=True, kw_only=True):
    """The thread whose session to open."""

    thread_id: Annotated[str, Meta(min_length=1, max_length=64)]
    agent: str | None = None
    model: str | None = None


class ShownThread(_Shown, frozen=True, kw_only=True):
    """A conversation."""

    id: str
    title: str
    created_at: str
    changed_at: str
    messages: int
    agent: str | None = None
    model: str | None = None
    is_warm: bool = False
    running: list[str] = []
    """The turns that run or wait in it."""


class ShownMessage(_Shown, frozen=True, kw_only=True):
    """A message of a thread."""

    seq: int
    turn: str
    role: Literal["user", "assistant"]
    text: str
    at: str
    details: JsonObject | None = None


class ShownTurn(_Shown, frozen=True, kw_only=True):
    """A message's answer, in progress or ended."""

    id: str
    state: TurnState
    trace_id: str
    started_at: str
    ended_at: str | None = None
    partial: str = ""
    error: JsonObject | None = None


class ThreadList(_Shown, frozen=True, kw_only=True):
    """A page of threads, the last changed first."""

    threads: list[ShownThread]
    next: str | None = None
    """The value of `before` for the next page; absent on the last."""


class MessageList(_Shown, frozen=True, kw_only=True):
    """A page of messages, in order."""

    messages: list[ShownMessage]


class TurnList(_Shown, frozen=True, kw_only=True):
    """Turns, the latest first."""

    turns: list[ShownTurn]


class Cancelled(_Shown, frozen=True, kw_only=True):
    """The turns that are being stopped."""

    cancelled: list[str]


class Prewarmed(_Shown, frozen=True, kw_only=True):
    """A session that is open."""

    thread_id: str
    state: Literal["warm"]
    took_ms: float


class ShownAgent(_Shown, frozen=True, kw_only=True):
    """An agent that answers."""

    name: str
    kind: str
    model: str | None = None
    is_default: bool = False


class AgentList(_Shown, frozen=True, kw_only=True):
    """All agents."""

    agents: list[ShownAgent]


def render_thread(thread: Thread, *, is_warm: bool, running: list[str]) -> ShownThread:
    return ShownThread(
        id=thread.id,
        title=thread.title,
        created_at=format_time(thread.created_at),
        changed_at=format_time(thread.changed_at),
        messages=thread.last_seq,
        agent=thread.agent,
        model=thread.model,
        is_warm=is_warm,
        running=running,
    )


def render_message(message: ThreadMessage) -> ShownMessage:
    return ShownMessage(
        seq=message.seq,
        turn=message.turn,
        role=message.role,
        text=message.text,
        at=format_time(message.at_utc),
        details=message.details,
    )


def render_turn(turn: Turn) -> ShownTurn:
    return ShownTurn(
        id=turn.id,
        state=turn.state,
        trace_id=turn.trace_id,
        started_at=format_time(turn.started_at),
        ended_at=format_time(turn.ended_at) if turn.ended_at is not None else None,
        partial=turn.partial,
        error=turn.error,
    )
