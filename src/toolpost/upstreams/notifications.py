"""Notifications of a server (log messages, changed lists and resources), and which callers they concern.

Transports receive them; `supervisor` forwards those in `FORWARDED`; which clients get them is decided by the endpoints.
"""

import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from toolpost.base.ids import CallerId
from toolpost.protocol.extensions import declares_extensions, is_extension_notification
from toolpost.upstreams.server_requests import ClientChannel

LOG_MESSAGE: Final = "notifications/message"
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
PROMPTS_CHANGED: Final = "notifications/prompts/list_changed"
RESOURCES_CHANGED: Final = "notifications/resources/list_changed"
RESOURCE_UPDATED: Final = "notifications/resources/updated"
ELICITATION_COMPLETE: Final = "notifications/elicitation/complete"

FORWARDED: Final = frozenset({LOG_MESSAGE, PROMPTS_CHANGED, RESOURCES_CHANGED, RESOURCE_UPDATED, ELICITATION_COMPLETE})

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Levels of log messages, the least severe first."""

ClientIds = frozenset[Hashable]
"""Clients that have received the notification already; for a completed elicitation, the clients that are to receive it."""

NO_CLIENTS: Final[ClientIds] = frozenset()

NotificationListener = Callable[[str, bytes, ClientIds, CallerId | None], None]
"""Takes a notification: its method, the JSON of its parameters, clients, and the caller that it is about, if it is known."""

LATE_S: Final = 2.0
"""How long after the end of a call a server may still log about it."""

ABANDONED_S: Final = 30.0
"""How long a server may go on with a cancelled call: messages during that time may be about that call."""

_CALLERS_LIMIT: Final = 64

EXTENSIONS_PER_S: Final = 50.0
EXTENSION_BURST: Final = 200
"""How many notifications of extensions pass in a second, and at once after a silence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Notification:
    """A notification of a server, for the clients of the gateway."""

    server: str
    key: str
    """The key of the instance that sent it; empty for an instance that all callers share."""
    method: str
    params: bytes
    clients: ClientIds = NO_CLIENTS
    caller: CallerId | None = None
    """For a log message and what an extension sends, the caller whose call it is about; None if that is not known."""
    owner: str | None = None
    """Whose credentials the instance has, where callers have their own: only that owner may see it. None: all callers."""
    tags: frozenset[str] | None = None
    """The tags of a plugin in whose name a part sends it; None for a notification of a server."""

    @property
    def is_extension(self) -> bool:
        return is_extension_notification(self.method)


class _Level(msgspec.Struct):
    level: str = "info"


_level = msgspec.json.Decoder(_Level)


def parse_level(params: bytes) -> str:
    """Return the level of a log message, `info` if it has none."""
    try:
        return _level.decode(params).level
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "info"


def is_level_at_least(level: str, threshold: str) -> bool:
    """Whether a level is at least as severe as another; an unknown level always is."""
    return (
        level not in LOG_LEVELS or threshold not in LOG_LEVELS or LOG_LEVELS.index(level) >= LOG_LEVELS.index(threshold)
    )


class Attribution:
    """Finds the caller that a log message is about, on a channel that all calls share.

    The protocol does not say it. It is the caller whose calls are in flight, if they are all of one caller, and no call of
    another one has ended a moment ago (`LATE_S`) or was cancelled lately (`ABANDONED_S`): a late message may be about that
    call, and must not reach a caller whom it does not concern.
    """

    __slots__ = ("_abandoned", "_earlier_at", "_last", "_last_at")

    def __init__(self) -> None:
        self._abandoned: dict[CallerId, float] = {}
        """When each caller last cancelled a call, the latest last."""
        # The caller of the call that ended last, and when the last call of any other caller ended.
        self._last: CallerId | None = None
        self._last_at = self._earlier_at = float("-inf")

    def note_end(self, caller: CallerId) -> None:
        if caller != self._last:
            self._last, self._earlier_at = caller, self._last_at
        self._last_at = time.monotonic()

    def note_abandoned(self, caller: CallerId) -> None:
        """Note that a call was cancelled, which the server may ignore."""
        self._abandoned.pop(caller, None)
        self._abandoned[caller] = time.monotonic()
        if len(self._abandoned) > _CALLERS_LIMIT:
            del self._abandoned[next(iter(self._abandoned))]

    def may_serve_others(self, caller: CallerId | None) -> bool:
        """Whether the server may still work on a call that another caller cancelled."""
        if not self._abandoned:
            return False
        since = time.monotonic() - ABANDONED_S
        return any(at > since for other, at in self._abandoned.items() if other != caller)

    def find_caller(self, in_flight: Iterable[CallerId | None]) -> CallerId | None:
        """Return the caller, given those of all requests in flight (None for the gateway's own); None if it is not certain."""
        # Requests of the gateway itself, such as a ping, concern no caller, and make none of them doubtful.
        callers = {caller for caller in in_flight if caller is not None}
        if len(callers) != 1:
            return None
        caller = callers.pop()
        others_ended_at = self._earlier_at if caller == self._last else self._last_at
        if time.monotonic() - others_ended_at < LATE_S or self.may_serve_others(caller):
            return None
        return caller


class ExtensionBudget:
    """Limits how many notifications of extensions one side may send: no more than a person or a model could use."""

    __slots__ = ("_left", "_since", "dropped")

    def __init__(self) -> None:
        self._left = float(EXTENSION_BURST)
        self._since = time.monotonic()
        self.dropped = 0
        """How many were over the limit."""

    def take(self) -> bool:
        """Count a notification; False if it is to be dropped."""
        now = time.monotonic()
        self._left = min(EXTENSION_BURST, self._left + (now - self._since) * EXTENSIONS_PER_S)
        self._since = now
        if self._left < 1:
            self.dropped += 1
            return False
        self._left -= 1
        return True


def send_to_clients(method: str, params: bytes, client_channels: Iterable[ClientChannel | None]) -> ClientIds:
    """Forward an extension's notification to the clients that declare extensions; returns those that were told."""
    clients: set[Hashable] = set()
    for channel in client_channels:
        if (
            channel is not None
            and channel.client not in clients
            and channel.can_tell
            and declares_extensions(channel.capabilities)
        ):
            clients.add(channel.client)
            channel.tell(method, params)
    return frozenset(clients)


def send_log_to_clients(params: bytes, client_channels: Iterable[ClientChannel | None]) -> ClientIds:
    """Forward a log message to the clients that want its level; returns all clients whose calls it is about."""
    level = parse_level(params)
    clients: set[Hashable] = set()
    for client_channel in client_channels:
        if client_channel is not None and client_channel.client not in clients:
            clients.add(client_channel.client)
            if client_channel.wants_log(level):
                client_channel.tell(LOG_MESSAGE, params)
    return frozenset(clients)
