"""The hooks of conversations, beside those of the kernel. An implementation takes the arguments that it needs."""

from collections.abc import Awaitable, Sequence

from toolpost.parts import hookspec
from toolpost.parts.agents.conversations import Conversations
from toolpost.parts.agents.threads import ThreadMessage
from toolpost.parts.agents.turn_events import TurnEnded
from toolpost.parts.agents.values import ToolCall, TurnInfo


@hookspec
def toolpost_conversations(conversations: Conversations) -> Awaitable[None] | None:
    """Receive the interface to conversations. Called once, after `toolpost_start`, when messages can be answered."""


@hookspec
def toolpost_on_message(turn: TurnInfo, text: str) -> Awaitable[None] | None:
    """Called with each message of a person or a program, before it is answered. Every plugin is called."""


@hookspec
def toolpost_classify(turn: TurnInfo, text: str) -> Awaitable[str | None] | str | None:
    """Answer a message instead of the agent. The first plugin that returns a text answers; None leaves it to the others."""


@hookspec
def toolpost_before_invoke(turn: TurnInfo, prompt: str) -> Awaitable[str | None] | str | None:
    """Change the agent's prompt. Each plugin receives the result of the previous plugin; None changes nothing."""


@hookspec
def toolpost_check_answer(turn: TurnInfo, answer: str) -> Awaitable[str | None] | str | None:
    """Return what the agent still has to do before its turn may end, as a prompt; None if there is nothing.

    The agent is prompted with the first text, in the same turn. If a text is returned after that, too, or a plugin fails, the
    turn fails: what is required must not be skipped.
    """


@hookspec
def toolpost_after_invoke(turn: TurnInfo, answer: str) -> Awaitable[None] | None:
    """Called with the agent's answer before it is stored. Every plugin is called."""


@hookspec
def toolpost_on_complete(turn: TurnInfo, ended: TurnEnded) -> Awaitable[None] | None:
    """Called with the outcome of a turn after it was stored. Every plugin is called."""


@hookspec
def toolpost_on_tool_call(call: ToolCall) -> Awaitable[None] | None:
    """Called for each tool call of a conversation's agent. Every plugin is called; the tool call does not wait for it."""


@hookspec
def toolpost_summarize(turn: TurnInfo, messages: Sequence[ThreadMessage]) -> Awaitable[str | None] | str | None:
    """Summarize older messages for an agent that is given only the newer ones. The first plugin that returns a text wins."""
