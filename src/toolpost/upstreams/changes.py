"""Follows the changes of a running server: its list of tools, subscribed resources, and the log level.

A server need not announce that its tools have changed, and one that deceives models will not. So those of a running server are
also listed every `relist_s`. `ToolListRefresher.is_overdue` is set when that was not possible in time: a call that must not pass
without a comparison looks at this flag, and reads no clock.

In the stateless era one `subscriptions/listen` request carries everything, and is made again when the filter changes; in the
handshake era each subscription is a request of its own, and has to be repeated after a restart.
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import anyio

from toolpost.base import JsonObject, event
from toolpost.contracts.errors import ToolpostError, UpstreamUnavailable
from toolpost.upstreams.handshake import Negotiation
from toolpost.upstreams.transport import ServerRefused, Transport, UpstreamRequest, encode

_log = logging.getLogger("toolpost.upstreams")

DEBOUNCE_S: Final = 0.2
EARLY: Final = (0.6, 0.9)
"""When tools are listed again, as a part of `relist_s`: early enough to be done in time, and not all servers at once."""

RECONNECTED_S: Final = 10.0
"""A list that is younger is not asked for again after a lost stream: some servers close theirs every second."""

LISTEN_RETRY_S: Final = 5.0
LISTEN_RETRY_LIMIT_S: Final = 300.0
"""After how long a stream that was lost is opened again, at first and after many losses in a row."""

RESUBSCRIBE_LIMIT_S: Final = 10.0


class ToolListRefresher:
    """Lists the tools again on request and every `relist_s`: one listing at a time, and one for a burst of requests.

    `run` must be running. Every listing, also that of a server that has just started, is noted by `note_listed`.
    """

    def __init__(self, server: str, relist: Callable[[], Awaitable[None]], relist_s: float) -> None:
        """`relist_s` is 0 for a list that is asked for on request only. `relist` does nothing while no server runs."""
        self._server = server
        self._relist = relist
        self._relist_s = relist_s
        self._requested = anyio.Event()
        self._tried = anyio.Event()
        """Set after each listing that was asked for, and then replaced by a new event."""
        self._listed_at = -math.inf
        self._timer: asyncio.TimerHandle | None = None
        self.is_overdue = True
        """Whether the tools were not listed for longer than `relist_s`, or never."""
        self.reason = "they have not been listed yet"
        """Why they could not be, for people."""

    def set_interval(self, relist_s: float) -> None:
        if relist_s != self._relist_s:
            self._relist_s = relist_s
            self.request_refresh()

    def request_refresh(self) -> None:
        self._requested.set()

    def note_reconnected(self) -> None:
        """Ask for the tools again: behind a connection that was lost there may be another server."""
        if time.monotonic() - self._listed_at > RECONNECTED_S:
            self.request_refresh()

    def note_listed(self) -> None:
        """Note that the tools were listed, and what follows from that is done."""
        self._listed_at = time.monotonic()
        self.is_overdue = False
        if self._timer is not None:
            self._timer.cancel()
        if self._relist_s:
            self._timer = asyncio.get_running_loop().call_later(self._relist_s, self._set_overdue)

    async def try_now(self) -> None:
        """Ask for the tools, and wait until they were listed or could not be."""
        tried = self._tried
        self.request_refresh()
        await tried.wait()

    def _set_overdue(self) -> None:
        self.is_overdue = True

    async def run(self) -> None:
        try:
            while True:
                pause_s = self._relist_s * random.uniform(*EARLY) if self._relist_s else math.inf  # noqa: S311 (no secret)
                with anyio.move_on_after(pause_s):
                    await self._requested.wait()
                    await anyio.sleep(DEBOUNCE_S)
                self._requested = anyio.Event()
                try:
                    await self._relist()
                except Exception as error:  # noqa: BLE001 (the old list stands, whatever the server did)
                    self.reason = str(error) or type(error).__name__
                    event(_log, logging.WARNING, "tools could not be listed", server=self._server, reason=self.reason)
                self._tried.set()
                self._tried = anyio.Event()
        finally:
            if self._timer is not None:
                self._timer.cancel()


class InstanceSubscriptions:
    """The resources and the log level that one instance is to send notifications for."""

    def __init__(self, uris: Collection[str] = (), log_level: str | None = None) -> None:
        self.uris = sorted(uris)
        self.log_level = log_level
        self.changed = anyio.Event()
        """Set when the resources change, and then replaced by a new event."""

    def set_uris(self, uris: Collection[str]) -> None:
        self.uris = sorted(uris)
        self.changed.set()
        self.changed = anyio.Event()


async def keep_subscribed(
    transport: Transport,
    negotiation: Negotiation,
    subscriptions: InstanceSubscriptions,
    on_reconnected: Callable[[], None],
) -> None:
    """Subscribe at a server that has just started, and in the stateless era for as long as it takes subscriptions.

    Failures are logged: a server that does not take a subscription still answers calls. `on_reconnected` is called when a
    subscription was lost, and is made again.
    """
    if negotiation.is_stateless:
        await _keep_listening(transport, negotiation, subscriptions, on_reconnected)
        return
    requests = [("resources/subscribe", b'"uri":%b' % encode(uri)) for uri in subscriptions.uris]
    if subscriptions.log_level is not None and "logging" in negotiation.capabilities:
        requests.append(("logging/setLevel", b'"level":%b' % encode(subscriptions.log_level)))
    for method, fields in requests:
        try:
            with anyio.fail_after(RESUBSCRIBE_LIMIT_S):
                await transport.request(UpstreamRequest(method, fields))
        except (ServerRefused, UpstreamUnavailable, TimeoutError) as error:
            event(_log, logging.WARNING, "subscription failed", method=method, reason=str(error))


async def _keep_listening(
    transport: Transport,
    negotiation: Negotiation,
    subscriptions: InstanceSubscriptions,
    on_reconnected: Callable[[], None],
) -> None:
    lists = {
        f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources") if negotiation.has_list_changed(kind)
    }
    pause_s = LISTEN_RETRY_S
    while True:
        changed, began = subscriptions.changed, time.monotonic()
        resources = {"resourceSubscriptions": subscriptions.uris} if subscriptions.uris else {}
        error = await _listen(transport, lists | resources, changed)
        if isinstance(error, ServerRefused):
            event(_log, logging.WARNING, "subscription failed", method="subscriptions/listen", reason=str(error))
            return
        if error is None or time.monotonic() - began > LISTEN_RETRY_LIMIT_S:
            pause_s = LISTEN_RETRY_S
        with anyio.move_on_after(pause_s):
            await changed.wait()
        if error is not None:
            pause_s = min(2 * pause_s, LISTEN_RETRY_LIMIT_S)
            on_reconnected()


async def _listen(transport: Transport, notifications: JsonObject, changed: anyio.Event) -> Exception | None:
    """Hold a `subscriptions/listen` request open until `changed`; returns the error if it is refused or lost."""
    failure: Exception | None = None

    async def listen() -> None:
        nonlocal failure
        try:
            fields = b'"notifications":%b' % encode(notifications)
            await transport.request(UpstreamRequest("subscriptions/listen", fields))
        except (ServerRefused, ToolpostError) as error:
            # A proxy cuts streams that are idle, and a token expires: neither ends the instance, nor its subscriptions for good.
            failure = error
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        if notifications:
            tasks.start_soon(listen)
        await changed.wait()
        tasks.cancel_scope.cancel()
    return failure
