"""What a server says by itself: what it logs, which of its lists and resources have changed, and for whom that is."""

import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from toolpost.base.ids import CallerId
from toolpost.upstreams.server_requests import ClientChannel

LOG_MESSAGE: Final = "notifications/message"
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
PROMPTS_CHANGED: Final = "notifications/prompts/list_changed"
RESOURCES_CHANGED: Final = "notifications/resources/list_changed"
RESOURCE_UPDATED: Final = "notifications/resources/updated"
ELICITATION_COMPLETE: Final = "notifications/elicitation/complete"

FORWARDED: Final = frozenset({LOG_MESSAGE, PROMPTS_CHANGED, RESOURCES_CHANGED, RESOURCE_UPDATED, ELICITATION_COMPLETE})

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Of a log message, the least grave first."""

ClientIds = frozenset[Hashable]
"""Clients that have heard of something already; of an elicitation that is complete, those that are to hear of it."""

NO_CLIENTS: Final[ClientIds] = frozenset()

NotificationListener = Callable[[str, bytes, ClientIds, CallerId | None], None]
"""Takes a notification: its method, the JSON of its parameters, who knows of it, and of a log message whose call it is about."""

LATE_S: Final = 2.0
"""How long after the end of a call a server may still log something about it."""

ABANDONED_S: Final = 30.0
"""How long a server may be at work on a call that was given up: what it says meanwhile may be about that one."""

_CALLERS_LIMIT: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Notification:
    """Something that a server said by itself."""

    server: str
    key: str
    """Whose instance said it; empty for one that all share."""
    method: str
    params: bytes
    told: ClientIds = NO_CLIENTS
    caller: CallerId | None = None
    """Of a log message, the caller whose call it is about; None if that cannot be told."""
    tags: frozenset[str] | None = None
    """Of what a part says in the name of its plugin, the tags of that; None for what a server says."""


class _Level(msgspec.Struct):
    level: str = "info"


_level = msgspec.json.Decoder(_Level)


def parse_level(params: bytes) -> str:
    """Read how grave a log message is."""
    try:
        return _level.decode(params).level
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "info"


def is_level_at_least(level: str, threshold: str) -> bool:
    """Whether a level is at least as grave as another; one that nobody knows always is."""
    return (
        level not in LOG_LEVELS or threshold not in LOG_LEVELS or LOG_LEVELS.index(level) >= LOG_LEVELS.index(threshold)
    )


class Attribution:
    """Says which caller a log message is about that comes on a channel of all calls, such as a pipe, and does not say it.

    It is the caller whose calls are in flight, if that is one caller alone and no other one's call has ended a moment ago: what
    a server says late is about a call that is over. Anybody else would read what another caller's call is about.
    """

    __slots__ = ("_abandoned", "_earlier_at", "_last", "_last_at")

    def __init__(self) -> None:
        self._abandoned: dict[CallerId, float] = {}
        """When callers last gave a call up, the latest last."""
        # The caller of the call that ended last, and when the last call of anybody else did.
        self._last: CallerId | None = None
        self._last_at = self._earlier_at = float("-inf")

    def note_end(self, caller: CallerId) -> None:
        """Take note that a call has ended."""
        if caller != self._last:
            self._last, self._earlier_at = caller, self._last_at
        self._last_at = time.monotonic()

    def note_abandoned(self, caller: CallerId) -> None:
        """Take note that nobody waits for a call any longer, which the server may not heed."""
        self._abandoned.pop(caller, None)
        self._abandoned[caller] = time.monotonic()
        if len(self._abandoned) > _CALLERS_LIMIT:
            del self._abandoned[next(iter(self._abandoned))]

    def may_serve_others(self, caller: CallerId | None) -> bool:
        """Whether the server may be at work on a call that a caller other than this one gave up."""
        if not self._abandoned:
            return False
        since = time.monotonic() - ABANDONED_S
        return any(at > since for other, at in self._abandoned.items() if other != caller)

    def find_caller(self, in_flight: Iterable[CallerId | None]) -> CallerId | None:
        """Return the caller, given those of all requests in flight (None for our own); None if it cannot be told."""
        callers = {caller for caller in in_flight if caller is not None}
        if len(callers) != 1:
            return None
        caller = callers.pop()
        others_ended_at = self._earlier_at if caller == self._last else self._last_at
        if time.monotonic() - others_ended_at < LATE_S or self.may_serve_others(caller):
            return None
        return caller


def send_log_to_clients(params: bytes, client_channels: Iterable[ClientChannel | None]) -> ClientIds:
    """Pass a log message at once to clients whose calls it is about, if they want to hear it; returns which clients these are."""
    level = parse_level(params)
    told: set[Hashable] = set()
    for client_channel in client_channels:
        if client_channel is not None and client_channel.client not in told:
            told.add(client_channel.client)
            if client_channel.hears(level):
                client_channel.tell(LOG_MESSAGE, params)
    return frozenset(told)
