"""What plugins for conversations share: they are handed all conversations, and act in the name of whoever called."""

from toolpost.authoring import Plugin
from toolpost.authoring.context import Context
from toolpost.authoring.conversation import Conversations
from toolpost.base.caller import Principal
from toolpost.base.ids import ThreadId
from toolpost.contracts.errors import CapabilityMissing, InvalidRequest


class ConversationsHandle:
    """The conversations of one server, once it has any."""

    def __init__(self, plugin: Plugin) -> None:
        self._conversations: Conversations | None = None

        @plugin.hook
        async def toolpost_conversations(conversations: Conversations) -> None:
            self._conversations = conversations

    @property
    def is_ready(self) -> bool:
        """Whether messages can be answered."""
        return self._conversations is not None

    @property
    def conversations(self) -> Conversations:
        """All conversations."""
        if self._conversations is None:
            raise CapabilityMissing("Conversations are not available yet.", hint="try again in a moment")
        return self._conversations

    def reader(self, ctx: Context) -> Principal:
        """Say whose threads may be read: those of whoever called."""
        return Principal(caller=ctx.caller)

    def actor(self, ctx: Context) -> tuple[Principal, ThreadId]:
        """Say in whose name a conversation's agent may have others act: with the limits of whoever leads it, and no more."""
        thread = ctx.caller.thread
        if thread is None:
            raise InvalidRequest(
                "Only an agent in a conversation may use this tool.", hint="ask an agent to: `toolpost chat`"
            )
        principal = self.conversations.standing_in(thread)
        if principal is None:
            raise InvalidRequest("This agent has no turn in progress.")
        return principal, thread
