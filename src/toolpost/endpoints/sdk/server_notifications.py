"""Notifications that servers send unasked, on their way to the subscribers of the SDK's endpoint."""

from collections import deque
from itertools import chain
from typing import Final

from anyio import Event, sleep

from toolpost.base.ids import CallerId
from toolpost.endpoints.sdk.lazy import LazySdk
from toolpost.upstreams.notifications import LOG_MESSAGE, Notification

_SETTLE_S: Final = 0.05
_NOTIFICATION_LIMIT: Final = 1_000


class ServerNotifications:
    """Notifications that servers sent unasked, queued on their way to subscribers."""

    def __init__(self) -> None:
        self._noted = Event()
        self._logs: dict[tuple[str, CallerId | None], deque[Notification]] = {}
        """By server and caller: what is logged about one caller's calls pushes out nothing of another's."""
        self._changes: deque[Notification] = deque(maxlen=_NOTIFICATION_LIMIT)

    def note(self, notification: Notification) -> None:
        """Queue a notification; beyond the limit, the oldest ones are dropped."""
        if _is_message(notification):
            self._logs.setdefault((notification.server, notification.caller), deque(maxlen=_NOTIFICATION_LIMIT)).append(
                notification
            )
        else:
            self._changes.append(notification)
        self._noted.set()

    async def follow(self, sdk: LazySdk) -> None:
        """Forward what is queued until cancelled; of equal changes only one."""
        while True:
            await self._noted.wait()
            self._noted = Event()
            if not self._logs:
                await sleep(_SETTLE_S)
            waiting, forwarded = [*self._changes, *chain.from_iterable(self._logs.values())], set[Notification]()
            self._changes.clear()
            self._logs.clear()
            for notification in waiting:
                if sdk.loaded is not None and (_is_message(notification) or notification not in forwarded):
                    forwarded.add(notification)
                    await sdk.loaded.subscribers.forward(notification)


def _is_message(notification: Notification) -> bool:
    """Whether each such notification counts, in its order; of a change it is enough to be told once."""
    return notification.method == LOG_MESSAGE or notification.is_extension
