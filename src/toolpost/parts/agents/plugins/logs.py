"""`logs__query`: log events about the caller's conversations, the latest first."""

import logging
from collections import deque
from typing import Annotated, Final, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from toolpost import Context, Plugin, __version__
from toolpost.base import Json, format_time
from toolpost.parts.agents.plugins.conversations_handle import ConversationsHandle

KEPT: Final = 5_000
"""How many events are kept in memory."""

LOCAL: Final = "local"
"""The id of a caller where no authentication is configured. They run the server, and may see all events."""

_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


@dataclass
class Entry:
    """A log event."""

    at: str
    level: str
    logger: str
    event: str
    fields: dict[str, Json]
    exception: str | None = None


def make() -> Plugin:
    plugin = Plugin("logs", version=__version__)
    handle, recent = ConversationsHandle(plugin), _RecentEvents()
    logger = logging.getLogger("toolpost")
    plugin.on_start(lambda: logger.addHandler(recent))
    plugin.on_stop(lambda: logger.removeHandler(recent))

    @plugin.tool(annotations={"readOnlyHint": True, "openWorldHint": False})
    async def query(
        ctx: Context,
        level: Literal["debug", "info", "warning", "error"] = "info",
        thread: Annotated[str | None, Field(description="only what is about this conversation")] = None,
        trace: Annotated[str | None, Field(description="only what has this trace id")] = None,
        text: Annotated[str | None, Field(description="only what holds this text")] = None,
        limit: Annotated[int, Field(ge=1, le=500)] = 50,
    ) -> list[Entry]:
        """Read what was logged of your conversations, the latest first: failures of tools, hooks and agents."""
        own = None
        if ctx.caller.id != LOCAL:
            own = {
                str(t.id) for t in await handle.conversations.list_threads(handle.reading_principal(ctx), limit=1_000)
            }
        found = []
        for record in reversed(recent.records):
            entry = _make_entry(record)
            is_own = own is None or str(entry.fields.get("thread")) in own
            is_match = thread in (None, entry.fields.get("thread")) and trace in (None, entry.fields.get("trace"))
            is_match = is_match and (text is None or text.casefold() in str(entry).casefold())
            if is_own and is_match and record.levelno >= _LEVELS[level]:
                found.append(entry)
            if len(found) >= limit:
                break
        return found

    return plugin


class _RecentEvents(logging.Handler):
    """Keeps the latest `KEPT` events."""

    def __init__(self) -> None:
        super().__init__()
        self.records: deque[logging.LogRecord] = deque(maxlen=KEPT)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def _make_entry(record: logging.LogRecord) -> Entry:
    fields = getattr(record, "fields", None)
    error = record.exc_info[1] if record.exc_info else None
    return Entry(
        at=format_time(record.created),
        level=record.levelname.lower(),
        logger=record.name,
        event=record.getMessage(),
        fields={
            str(key): value if isinstance(value, str | int | float | bool | None) else str(value)
            for key, value in fields.items()
        }
        if isinstance(fields, dict)
        else {},
        exception=f"{type(error).__name__}: {error}" if error is not None else None,
    )
