"""Agents of `[agents]` as candidates: asked through the interface that plugins have to conversations, in the caller's name.

An agent uses tools, so a turn that has begun may have acted: if it then fails, nothing else is tried. Its tools are those that
the caller may see. One turn at a time for each caller, so that an agent that calls the router is not routed to itself.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from toolpost import Caller, CallerId, Plugin, Principal, ToolpostError, hookimpl
from toolpost.base import JsonObject
from toolpost.parts.models.endpoint import Completion, EndpointFailed, ModelImage, ModelPrompt, TextListener
from toolpost.parts.models.router import MayHaveActed

if TYPE_CHECKING:
    from toolpost.parts.agents import Conversations, TurnEvent

PrincipalOf = Callable[[Caller], Principal | None]
"""Returns a caller with the limits that hold for it now; None if it may no longer call."""


class AgentPool:
    """The agents of this gateway, once its conversations are open."""

    def __init__(self, principal_of: PrincipalOf) -> None:
        self.conversations: Conversations | None = None
        self.principal_of = principal_of
        self.busy: set[CallerId] = set()

    def attach(self, plugin: Plugin) -> None:
        """Have a plugin receive the conversations."""

        @plugin.hook
        @hookimpl(optionalhook=True)
        async def toolpost_conversations(conversations: "Conversations") -> None:
            self.conversations = conversations


class AgentModel:
    """One agent as a candidate."""

    acts = True

    def __init__(self, agent: str, pool: AgentPool) -> None:
        self._agent = agent
        self._pool = pool

    async def answer(self, prompt: ModelPrompt, caller: Caller, on_text: TextListener | None) -> Completion:
        """Ask the agent, and record nothing in the conversations of the caller."""
        # The part is loaded already if there are conversations, and need not be there otherwise.
        from toolpost.parts.agents import InvokeOptions, SessionReady, TextChunk

        conversations = self._pool.conversations
        if conversations is None:
            raise EndpointFailed("conversations are not open")
        principal = self._pool.principal_of(caller)
        if principal is None or caller.is_agent:
            raise EndpointFailed("an agent is not asked in the name of this caller", counts=False)
        if caller.id in self._pool.busy:
            raise EndpointFailed("an agent is already at work for this caller", counts=False)
        has_begun = False

        def listen(event: "TurnEvent") -> None:
            nonlocal has_begun
            has_begun = has_begun or isinstance(event, SessionReady)
            if on_text is not None and isinstance(event, TextChunk):
                on_text(event.text)

        self._pool.busy.add(caller.id)
        try:
            ended = await conversations.invoke(
                principal, _as_text(prompt), InvokeOptions(agent=self._agent, on_event=listen)
            )
        except ToolpostError as error:
            raise (MayHaveActed(error.message) if has_begun else EndpointFailed(error.message)) from error
        finally:
            self._pool.busy.discard(caller.id)
        if ended.state == "done":
            usage = ended.usage or {}
            return Completion(
                text=ended.text,
                finish="stop" if ended.reason in (None, "done") else ended.reason,
                input_tokens=_tokens(usage, "input"),
                output_tokens=_tokens(usage, "output"),
            )
        reason = str((ended.error or {}).get("message") or f"its turn is {ended.state}")
        raise MayHaveActed(reason) if has_begun else EndpointFailed(reason)


def _as_text(prompt: ModelPrompt) -> str:
    """Write a prompt as the one message that an agent takes."""
    parts: list[str] = [prompt.system] if prompt.system else []
    for message in prompt.messages:
        texts = [part for part in message.content if not isinstance(part, ModelImage)]
        if len(texts) < len(message.content):
            raise EndpointFailed("an agent takes no images here", counts=False)
        text = "\n\n".join(texts)
        parts.append(text if message.role == "user" else f"(your earlier answer)\n{text}")
    return "\n\n".join(parts)


def _tokens(usage: JsonObject, kind: str) -> int | None:
    """Read a count of tokens by the names that agents use for it."""
    found = (usage.get(f"{kind}_tokens"), usage.get(f"{kind}Tokens"))
    return next((value for value in found if isinstance(value, int) and value >= 0), None)
