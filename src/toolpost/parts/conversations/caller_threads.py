"""A caller's threads: begun, found, listed, changed and read; anybody else's are not there."""

import time
from typing import Final

from toolpost.base.caller import Principal
from toolpost.base.ids import ThreadId, new_thread_id
from toolpost.contracts.errors import NotFound
from toolpost.parts.conversations.agents import Crew
from toolpost.shares import Callers, over_limit
from toolpost.store.threads import Message, Thread, Threads, Turn

TITLE_LIMIT: Final = 80

FULL_RETRY_S: Final = 60.0


class OwnThreads:
    """What is kept of conversations, as each caller sees it."""

    def __init__(self, threads: Threads, crew: Crew, callers: Callers, *, kept: int) -> None:
        """Take how many conversations are kept, of all callers."""
        self._callers = callers
        self._kept = kept
        self.threads = threads
        self.crew = crew

    async def create_thread(
        self, standing: Principal, *, title: str = "", agent: str | None = None, model: str | None = None
    ) -> Thread:
        """Begin a conversation."""
        if agent is not None:
            self.crew.find(agent)
        now = time.time()
        thread = Thread(
            id=new_thread_id(),
            caller=standing.caller.id,
            title=title[:TITLE_LIMIT],
            agent=agent,
            model=model,
            created_at=now,
            changed_at=now,
        )
        own = await self.threads.create(thread, share=self._callers.share_of(self._kept), total=self._kept)
        if own is not None:
            hint = "delete conversations that are no longer needed"
            raise over_limit("conversations", own, self._kept, self._callers, retry_s=FULL_RETRY_S, hint=hint)
        return thread

    async def find_thread(self, standing: Principal, thread: ThreadId) -> Thread:
        """Return a thread of this caller's; anybody else's is not there."""
        found = await self.threads.find(thread)
        if found is None or found.caller != standing.caller.id:
            raise NotFound(f"There is no thread `{thread[:64]}`.", thread=thread[:64])
        return found

    async def list_threads(self, standing: Principal, *, before: float | None = None, limit: int = 50) -> list[Thread]:
        """Return this caller's threads, those that changed last first."""
        return await self.threads.page(standing.caller.id, before=before, limit=limit)

    async def change_thread(
        self, standing: Principal, thread: ThreadId, *, title: str | None, agent: str | None, model: str | None
    ) -> Thread:
        """Rename a thread, or have somebody else answer in it from now on; what is None stays.

        An agent or a model that is empty is forgotten: whoever is the default answers, with the model that it has. Another agent
        does not inherit the model of the one before.
        """
        found = await self.find_thread(standing, thread)
        if agent:
            self.crew.find(agent)
        if model is None and agent not in (None, found.agent):
            model = ""
        await self.threads.set(thread, title=None if title is None else title[:TITLE_LIMIT], agent=agent, model=model)
        return await self.find_thread(standing, thread)

    async def read_messages(
        self, standing: Principal, thread: ThreadId, *, after: int = 0, limit: int = 100
    ) -> list[Message]:
        """Return what was said in a thread."""
        await self.find_thread(standing, thread)
        return await self.threads.messages(thread, after=after, limit=limit)

    async def list_turns(self, standing: Principal, thread: ThreadId, *, limit: int = 50) -> list[Turn]:
        """Return how each message of a thread was answered, the latest first."""
        await self.find_thread(standing, thread)
        return await self.threads.turns(thread, limit=limit)
