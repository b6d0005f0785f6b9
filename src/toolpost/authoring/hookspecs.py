"""The hooks that a plugin may implement. A plugin is a module or an object with any of these; `Plugin` implements them all."""

from collections.abc import Awaitable, Iterable, Sequence

import pluggy

from toolpost.authoring.conversation import Conversations, ToolCall, TurnInfo
from toolpost.authoring.middleware import Middleware
from toolpost.authoring.resource import Prompt, Resource
from toolpost.authoring.tool import Tool
from toolpost.base.turns import TurnEnded
from toolpost.store.threads import ThreadMessage

ENTRY_POINT_GROUP = "toolpost"

hookspec = pluggy.HookspecMarker("toolpost")
hookimpl = pluggy.HookimplMarker("toolpost")


@hookspec
def toolpost_tools() -> Iterable[Tool]:  # type: ignore[empty-body]
    """Return the plugin's tools. Called once, before `toolpost_start`."""


@hookspec
def toolpost_resources() -> Iterable[Resource]:  # type: ignore[empty-body]
    """Return the plugin's resources. Called once, before `toolpost_start`."""


@hookspec
def toolpost_prompts() -> Iterable[Prompt]:  # type: ignore[empty-body]
    """Return the plugin's prompts. Called once, before `toolpost_start`."""


@hookspec
def toolpost_middleware() -> Iterable[Middleware]:  # type: ignore[empty-body]
    """Return middleware, which runs around every call of any tool, the outermost first. Called once, before `toolpost_start`."""


@hookspec
def toolpost_start() -> Awaitable[None] | None:
    """Prepare to serve. A plugin that fails here is reported by name, and the others are served."""


@hookspec
def toolpost_stop() -> Awaitable[None] | None:
    """Release what `toolpost_start` acquired."""


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
    """Change the agent's prompt. Each plugin receives the result of the one before; None changes nothing."""


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
