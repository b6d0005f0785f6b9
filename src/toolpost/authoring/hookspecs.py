"""What a plugin may implement. A plugin is a module or an object with any of these; `Plugin` implements them all."""

from collections.abc import Awaitable, Iterable, Sequence

import pluggy

from toolpost.authoring.conversation import Conversations, ToolCall, TurnInfo
from toolpost.authoring.middleware import Middleware
from toolpost.authoring.tool import Tool
from toolpost.base.turns import TurnEnded
from toolpost.store.threads import Message

ENTRY_POINT_GROUP = "toolpost"

hookspec = pluggy.HookspecMarker("toolpost")
hookimpl = pluggy.HookimplMarker("toolpost")


@hookspec
def toolpost_tools() -> Iterable[Tool]:  # type: ignore[empty-body]
    """Bring tools. Asked once, before `toolpost_start`."""


@hookspec
def toolpost_middleware() -> Iterable[Middleware]:  # type: ignore[empty-body]
    """Bring middleware, which runs around every call of any tool, the outermost first. Asked once, before `toolpost_start`."""


@hookspec
def toolpost_start() -> Awaitable[None] | None:
    """Get ready to serve. A plugin that fails here is reported by name, and the rest serves."""


@hookspec
def toolpost_stop() -> Awaitable[None] | None:
    """Let go of what `toolpost_start` took."""


@hookspec
def toolpost_conversations(conversations: Conversations) -> Awaitable[None] | None:
    """Be handed all conversations, to lead some. Asked once, after `toolpost_start`, when messages can be answered."""


@hookspec
def toolpost_on_message(turn: TurnInfo, text: str) -> Awaitable[None] | None:
    """Hear what a person or a program says, before anybody answers. Every plugin is told."""


@hookspec
def toolpost_classify(turn: TurnInfo, text: str) -> Awaitable[str | None] | str | None:
    """Answer a message instead of the agent. The first plugin that returns a text has answered; None leaves it to others."""


@hookspec
def toolpost_before_invoke(turn: TurnInfo, prompt: str) -> Awaitable[str | None] | str | None:
    """Change what the agent is asked. Each plugin is given what the one before it made; None changes nothing."""


@hookspec
def toolpost_after_invoke(turn: TurnInfo, answer: str) -> Awaitable[None] | None:
    """Hear what the agent answered, before it is kept. Every plugin is told."""


@hookspec
def toolpost_on_complete(turn: TurnInfo, ended: TurnEnded) -> Awaitable[None] | None:
    """Hear how a turn ended, whatever became of it, after it was kept. Every plugin is told."""


@hookspec
def toolpost_on_tool_call(call: ToolCall) -> Awaitable[None] | None:
    """Hear of a tool that a conversation's agent has used through the gateway. Every plugin is told; nobody waits for it."""


@hookspec
def toolpost_summarise(turn: TurnInfo, messages: Sequence[Message]) -> Awaitable[str | None] | str | None:
    """Sum up older messages, for an agent that is told the newer ones only. The first plugin that returns a text is heard."""
