"""What a session is told of the conversation before it is asked: all that it does not know, within bounds, and nothing else."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from toolpost.base.ids import ThreadId
from toolpost.store.threads import Message, Threads

LOOKED_AT: Final = 500
"""How many messages are looked at to be summed up."""

Summarise = Callable[[Sequence[Message]], Awaitable[str | None]]


@dataclass(frozen=True, kw_only=True)
class HistoryLimits:
    """How much a session is told."""

    messages: int = 50
    tokens: int = 8_000


@dataclass(frozen=True, kw_only=True)
class History:
    """What there is to tell."""

    messages: Sequence[Message] = ()
    left_out: int = 0
    """How many older ones are not told."""
    summary: str | None = None

    def before(self, text: str) -> str:
        """Put it before what is asked now; with nothing to tell, that is all."""
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
    threads: Threads, thread: ThreadId, *, told: int, up_to: int, limits: HistoryLimits, summarise: Summarise
) -> History:
    """Gather what a session that knows of everything up to `told` has to be told, up to and with `up_to`."""
    if told >= up_to:
        return History()
    found = await threads.last_messages(thread, after=told, up_to=up_to, limit=LOOKED_AT)
    kept = _take_newest(found, limits)
    left_out = up_to - told - len(kept)
    older = found[: len(found) - len(kept)]
    summary = await summarise(older) if older else None
    return History(messages=kept, left_out=left_out, summary=summary)


def _take_newest(messages: Sequence[Message], limits: HistoryLimits) -> Sequence[Message]:
    """Keep the newest that fit; the very newest is kept in any case, cut if need be."""
    kept: list[Message] = []
    room = limits.tokens * 4
    for message in reversed(messages[-limits.messages :]):
        if len(message.text) > room:
            if not kept:
                kept.append(_cut(message, room))
            break
        kept.append(message)
        room -= len(message.text)
    return kept[::-1]


def _cut(message: Message, room: int) -> Message:
    return Message(
        thread=message.thread,
        seq=message.seq,
        turn=message.turn,
        role=message.role,
        text=f"…{message.text[-room:]}",
        at_utc=message.at_utc,
    )


def _render_line(message: Message) -> str:
    told: dict[str, str] = {"role": message.role, "text": message.text}
    if message.details and message.details.get("state") not in (None, "done"):
        told["note"] = f"this answer was {message.details['state']}"
    return msgspec.json.encode(told).decode()
