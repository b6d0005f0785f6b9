"""`history__threads`, `history__search` and `history__read`: the messages of the caller's conversations."""

from typing import Annotated, Final

from pydantic import Field
from pydantic.dataclasses import dataclass

from toolpost import Context, ErrorCode, Plugin, __version__
from toolpost.base import ThreadId, format_second
from toolpost.parts.agents.plugins.conversations_handle import ConversationsHandle
from toolpost.parts.agents.threads import ThreadMessage

SEARCHED_THREADS: Final = 200
"""How many threads a search reads, the last changed first."""

_PAGE: Final = 500
_EXCERPT: Final = 120
"""Characters of a long message that are shown before the first match; twice as many after it."""

_READ_ONLY: Final = {"readOnlyHint": True, "openWorldHint": False}


@dataclass
class FoundThread:
    """A conversation."""

    id: str
    title: str
    changed_at: str
    messages: int


@dataclass
class FoundMessage:
    """A message of a conversation."""

    thread: str
    seq: int
    role: str
    text: str
    at: str


def make() -> Plugin:
    plugin = Plugin("history", version=__version__)
    handle = ConversationsHandle(plugin)

    @plugin.tool(annotations=_READ_ONLY)
    async def threads(ctx: Context, limit: Annotated[int, Field(ge=1, le=200)] = 20) -> list[FoundThread]:
        """List your conversations, those that changed last first."""
        found = await handle.conversations.list_threads(handle.reading_principal(ctx), limit=limit)
        return [
            FoundThread(id=t.id, title=t.title, changed_at=format_second(t.changed_at), messages=t.last_seq)
            for t in found
        ]

    @plugin.tool(annotations=_READ_ONLY, timeout_s=60)
    async def search(
        ctx: Context,
        query: Annotated[str, Field(min_length=2, max_length=200, description="words that all have to be there")],
        limit: Annotated[int, Field(ge=1, le=100)] = 20,
    ) -> list[FoundMessage]:
        """Find messages of your conversations that hold all these words, the latest first."""
        words = query.casefold().split()
        found: list[FoundMessage] = []
        for thread in await handle.conversations.list_threads(handle.reading_principal(ctx), limit=SEARCHED_THREADS):
            hits = [m for m in await _read_all(handle, ctx, thread.id) if all(w in m.text.casefold() for w in words)]
            found += [_render(message, around=words[0]) for message in reversed(hits)]
            if len(found) >= limit:
                break
        return found[:limit]

    @plugin.tool(annotations=_READ_ONLY, errors=[ErrorCode.NOT_FOUND])
    async def read(
        ctx: Context,
        thread: str,
        after: Annotated[int, Field(ge=0, description="the number of the last message that you know")] = 0,
        limit: Annotated[int, Field(ge=1, le=200)] = 50,
    ) -> list[FoundMessage]:
        """Read what was said in one of your conversations, in order."""
        found = await handle.conversations.read_messages(
            handle.reading_principal(ctx), ThreadId(thread), after=after, limit=limit
        )
        return [_render(message) for message in found]

    return plugin


async def _read_all(handle: ConversationsHandle, ctx: Context, thread: ThreadId) -> list[ThreadMessage]:
    found: list[ThreadMessage] = []
    while page := await handle.conversations.read_messages(
        handle.reading_principal(ctx), thread, after=found[-1].seq if found else 0, limit=_PAGE
    ):
        found += page
        if len(page) < _PAGE:
            break
    return found


def _render(message: ThreadMessage, around: str | None = None) -> FoundMessage:
    text = message.text
    if around is not None and len(text) > 3 * _EXCERPT:
        at = text.casefold().find(around)
        text = f"…{text[max(0, at - _EXCERPT) : at + 2 * _EXCERPT]}…"
    return FoundMessage(
        thread=message.thread, seq=message.seq, role=message.role, text=text, at=format_second(message.at_utc)
    )
