"""Shared by the plugins for agents: access to the conversations of the server, and in whose name a call may act."""

from toolpost import CapabilityMissing, Context, Plugin, Principal
from toolpost.base import ThreadId
from toolpost.contracts import InvalidRequest
from toolpost.parts.agents.conversations import Conversations


class ConversationsHandle:
    """The interface to conversations, which a plugin receives through a hook after it was started."""

    def __init__(self, plugin: Plugin) -> None:
        self._conversations: Conversations | None = None

        @plugin.hook
        async def toolpost_conversations(conversations: Conversations) -> None:
            self._conversations = conversations

    @property
    def is_ready(self) -> bool:
        """Whether the interface was received, so that messages can be answered."""
        return self._conversations is not None

    @property
    def conversations(self) -> Conversations:
        """The interface; raises `CapabilityMissing` before it was received."""
        if self._conversations is None:
            raise CapabilityMissing("Conversations are not available yet.", hint="try again in a moment")
        return self._conversations

    def reading_principal(self, ctx: Context) -> Principal:
        """Return the principal for reading: the caller, who sees only their own threads."""
        return Principal(caller=ctx.caller)

    def acting_principal(self, ctx: Context) -> tuple[Principal, ThreadId]:
        """Return the principal in whose name an agent acts, within the limits of its conversation's caller, and its thread.

        Raises `InvalidRequest` for a caller that is no agent, and for an agent without a turn in progress.
        """
        thread = ctx.caller.thread
        if thread is None:
            raise InvalidRequest(
                "Only an agent in a conversation may use this tool.", hint="ask an agent to use it: `toolpost chat`"
            )
        principal = self.conversations.acting_principal(thread)
        if principal is None:
            raise InvalidRequest("This agent has no turn in progress.")
        return principal, thread
