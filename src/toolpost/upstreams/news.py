"""What a server says by itself: what it logs, which of its lists and resources have changed, and for whom that is."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from toolpost.upstreams.asking import Respondent

LOG: Final = "notifications/message"
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
PROMPTS_CHANGED: Final = "notifications/prompts/list_changed"
RESOURCES_CHANGED: Final = "notifications/resources/list_changed"
RESOURCE_UPDATED: Final = "notifications/resources/updated"
ELICITED: Final = "notifications/elicitation/complete"

PASSED_ON: Final = frozenset({LOG, PROMPTS_CHANGED, RESOURCES_CHANGED, RESOURCE_UPDATED, ELICITED})

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Of a log message, the least grave first."""

Told = frozenset[Hashable]
"""Clients that have heard of something already; of an elicitation that is complete, those that are to hear of it."""

NOBODY: Final[Told] = frozenset()

Hear = Callable[[str, bytes, Told], None]
"""Takes a notification: its method, the JSON of its parameters, and who knows of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class News:
    """Something that a server said by itself."""

    server: str
    key: str
    """Whose instance said it; empty for one that all share."""
    method: str
    params: bytes
    told: Told = NOBODY


class _Level(msgspec.Struct):
    level: str = "info"


_level = msgspec.json.Decoder(_Level)


def level_of(params: bytes) -> str:
    """Read how grave a log message is."""
    try:
        return _level.decode(params).level
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "info"


def reaches(level: str, threshold: str) -> bool:
    """Whether a level is at least as grave as another; one that nobody knows always is."""
    return level not in LEVELS or threshold not in LEVELS or LEVELS.index(level) >= LEVELS.index(threshold)


def tell_callers(params: bytes, respondents: Iterable[Respondent | None]) -> Told:
    """Pass a log message at once to the clients whose calls are in flight, if they want to hear it: it is mostly about those."""
    level = level_of(params)
    told: set[Hashable] = set()
    for respondent in respondents:
        if respondent is not None and respondent.client not in told:
            told.add(respondent.client)
            if respondent.hears(level):
                respondent.tell(LOG, params)
    return frozenset(told)
