"""The messages of a conversation that a session does not know yet, as a text to put before its next prompt.

An agent session that stays open knows the conversation. One that was opened later, or that missed messages which another agent
answered, gets the messages since the last one it knows: the newest within the limits, and a summary of those left out.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from toolpost.base import ThreadId
from toolpost.parts.agents.threads import ThreadMessage, Threads

READ_LIMIT: Final = 500
"""Messages that are read from the store; a summary covers no older ones."""

CHARACTERS_PER_TOKEN: Final = 4
"""An estimate for English text, to be independent of any model's tokenizer."""

Summarize = Callable[[Sequence[ThreadMessage]], Awaitable[str | None]]


@dataclass(frozen=True, kw_only=True)
class HistoryLimits:
    """Limits of the messages that are put before a prompt; longer ones are cut."""

    messages: int = 50
    tokens: int = 8_000


@dataclass(frozen=True, kw_only=True)
class History:
    """The messages that a session does not know, the oldest first."""

    messages: Sequence[ThreadMessage] = ()
    left_out: int = 0
    """How many older ones are left out because of the limits."""
    summary: str | None = None

    def before(self, text: str) -> str:
        """Return the prompt `text` with the history before it; unchanged if there is no history."""
        if not self.messages and not self.left_out:
            return text
        lines = [
            "You take part in a conversation that has gone on before. What you do not know of it yet,",
            "one message in each line, the oldest first:",
            "",
        ]
        if self.left_out:
            lines += [f"({self.left_out} older messages are left out.)"]
        if self.summary:
            lines += ["What was said before, summed up:", self.summary]
        lines += [_render_line(message) for message in self.messages]
        return "\n".join([*lines, "", "Go on from there. The user now says:", "", text])


async def history_of(
    threads: Threads, thread: ThreadId, *, known_seq: int, up_to: int, limits: HistoryLimits, summarize: Summarize
) -> History:
    """Read the messages after `known_seq`, up to and including `up_to`; `summarize` is called if any are left out."""
    if known_seq >= up_to:
        return History()
    found = await threads.last_messages(thread, after=known_seq, up_to=up_to, limit=READ_LIMIT)
    newest = _take_newest(found, limits)
    left_out = up_to - known_seq - len(newest)
    older = found[: len(found) - len(newest)]
    summary = await summarize(older) if older else None
    return History(messages=newest, left_out=left_out, summary=summary)


def _take_newest(messages: Sequence[ThreadMessage], limits: HistoryLimits) -> Sequence[ThreadMessage]:
    """Return the newest messages that fit; the last one is always among them, cut if necessary. Empty if a limit is 0."""
    if not limits.messages or not limits.tokens:
        return []
    newest: list[ThreadMessage] = []
    left = limits.tokens * CHARACTERS_PER_TOKEN
    for message in reversed(messages[-limits.messages :]):
        if len(message.text) > left:
            if not newest:
                newest.append(replace(message, text=f"…{message.text[-left:]}", details=None))
            break
        newest.append(message)
        left -= len(message.text)
    return newest[::-1]


def _render_line(message: ThreadMessage) -> str:
    line: dict[str, str] = {"role": message.role, "text": message.text}
    if message.details and message.details.get("state") not in (None, "done"):
        line["note"] = f"this answer was {message.details['state']}"
    return msgspec.json.encode(line).decode()
