"""A server's tools that change: heard of in either era, listed anew, a burst as one."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.contracts.events import event
from toolpost.upstreams.wire import ServerRefused, Wire

_log = logging.getLogger("toolpost.upstreams")

LIST_CHANGED: Final = "notifications/tools/list_changed"
DEBOUNCE_S: Final = 0.2
LISTEN_AGAIN_S: Final = 5.0


class Changes:
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


async def listen_for_changes(wire: Wire) -> None:
    """Subscribe, as the stateless era has it: what is heard comes as a notification. Ends with the wire."""
    while True:
        try:
            await wire.request("subscriptions/listen", b'"notifications":{"toolsListChanged":true}')
        except (ServerRefused, UpstreamUnavailable):
            return
        await anyio.sleep(LISTEN_AGAIN_S)
