"""What a server has that changes: heard of in either era; tools are listed anew, a burst as one."""

import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import anyio

from toolpost.base.events import event
from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.upstreams.handshake import Negotiation
from toolpost.upstreams.notifications import TOOLS_CHANGED
from toolpost.upstreams.transport import ServerRefused, Transport, encode

_log = logging.getLogger("toolpost.upstreams")

LIST_CHANGED: Final = TOOLS_CHANGED
DEBOUNCE_S: Final = 0.2
LISTEN_RETRY_S: Final = 5.0
RESUBSCRIBE_LIMIT_S: Final = 10.0


class ToolListRefresher:
    """Lists tools anew when somebody says so: one listing at a time, after a moment of calm."""

    def __init__(self, server: str, relist: Callable[[], Awaitable[None]]) -> None:
        self._server = server
        self._relist = relist
        self._told = anyio.Event()

    def tell(self) -> None:
        """Say that the tools may have changed."""
        self._told.set()

    async def follow(self) -> None:
        """List whenever told, until cancelled."""
        while True:
            await self._told.wait()
            await anyio.sleep(DEBOUNCE_S)
            self._told = anyio.Event()
            try:
                await self._relist()
            except Exception as error:  # noqa: BLE001 (the old list stands, whatever the server did)
                event(_log, logging.WARNING, "tools could not be listed", server=self._server, reason=str(error))


class InstanceSubscriptions:
    """What is wanted of one running server besides answers; it may change while the server runs."""

    def __init__(self, uris: Collection[str] = (), log_level: str | None = None) -> None:
        self.uris = sorted(uris)
        self.log_level = log_level
        self.changed = anyio.Event()

    def follow(self, uris: Collection[str]) -> None:
        """Follow these resources from now on."""
        self.uris = sorted(uris)
        self.changed.set()
        self.changed = anyio.Event()


async def keep_subscribed(transport: Transport, negotiation: Negotiation, subscriptions: InstanceSubscriptions) -> None:
    """See that a server tells us what is wanted of it. Ends with the transport, or at once where there is nothing to keep up."""
    if negotiation.is_modern:
        changed = subscriptions.changed
        while await _listen(transport, _make_filter(negotiation, subscriptions), changed):
            with anyio.move_on_after(LISTEN_RETRY_S):
                await changed.wait()
            changed = subscriptions.changed
        return
    requests = [("resources/subscribe", b'"uri":%b' % encode(uri)) for uri in subscriptions.uris]
    if subscriptions.log_level is not None and "logging" in negotiation.capabilities:
        requests.append(("logging/setLevel", b'"level":%b' % encode(subscriptions.log_level)))
    for method, fields in requests:
        try:
            with anyio.fail_after(RESUBSCRIBE_LIMIT_S):
                await transport.request(method, fields)
        except (ServerRefused, UpstreamUnavailable, TimeoutError) as error:
            event(_log, logging.WARNING, "not followed again", method=method, reason=str(error))


def _make_filter(negotiation: Negotiation, subscriptions: InstanceSubscriptions) -> JsonObject:
    lists = {
        f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources") if negotiation.has_list_changed(kind)
    }
    return lists | ({"resourceSubscriptions": subscriptions.uris} if subscriptions.uris else {})


async def _listen(transport: Transport, wanted: JsonObject, changed: anyio.Event) -> bool:
    """Subscribe, as the stateless era has it, until something else is wanted; False from a server that does not take it."""
    is_taken = True

    async def listen() -> None:
        nonlocal is_taken
        try:
            await transport.request("subscriptions/listen", b'"notifications":%b' % encode(wanted))
        except (ServerRefused, UpstreamUnavailable):
            is_taken = False
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        if wanted:
            tasks.start_soon(listen)
        await changed.wait()
        tasks.cancel_scope.cancel()
    return is_taken
