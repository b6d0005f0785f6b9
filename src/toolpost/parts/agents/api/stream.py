"""The events of turns as server-sent events, until a turn ends or the client disconnects or falls behind."""

from collections import deque
from collections.abc import Callable
from typing import Final

import anyio

from toolpost.endpoints.http import SSE_HEADERS, HttpRequest
from toolpost.parts.agents.turn_events import TurnEnded, TurnEvent, encode_event

KEEP_ALIVE_S: Final = 15.0
WAITING_LIMIT: Final = 50_000
"""Events that may wait for a client that reads slowly; beyond it, the client counts as disconnected."""


class TurnStream:
    """Sends events in order. `put` never waits: a slow client must not delay the turn or its other listeners."""

    def __init__(self, http: HttpRequest) -> None:
        self._http = http
        self._waiting: deque[TurnEvent] = deque()
        self._has_events = anyio.Event()
        self._has_fallen_behind = anyio.Event()

    def put(self, event: TurnEvent) -> None:
        """Queue an event; it is dropped if the client has fallen behind."""
        if len(self._waiting) >= WAITING_LIMIT:
            self._waiting.clear()
            self._has_fallen_behind.set()
        if not self._has_fallen_behind.is_set():
            self._waiting.append(event)
            self._has_events.set()

    async def serve(self, *, until_end: bool, on_gone: Callable[[], None]) -> None:
        """Send events until the first `TurnEnded`, or with `until_end=False` until the client disconnects.

        `on_gone` is called if the client disconnects or falls behind before the end.
        """
        async with anyio.create_task_group() as tasks:

            def leave() -> None:
                on_gone()
                tasks.cancel_scope.cancel()

            async def watch_backlog() -> None:
                await self._has_fallen_behind.wait()
                leave()

            tasks.start_soon(watch_disconnect, self._http, leave)
            tasks.start_soon(watch_backlog)
            await self._http.send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
            await self._send_events(until_end=until_end)
            tasks.cancel_scope.cancel()

    async def _send_events(self, *, until_end: bool) -> None:
        while True:
            with anyio.move_on_after(KEEP_ALIVE_S):
                await self._has_events.wait()
            self._has_events = anyio.Event()
            if not self._waiting:
                await self._send_chunk(b": still here\n\n")
            while self._waiting:
                event = self._waiting.popleft()
                kind = event.__struct_config__.tag
                assert isinstance(kind, str)
                await self._send_chunk(b"event: %b\ndata: %b\n\n" % (kind.encode(), encode_event(event)))
                if until_end and isinstance(event, TurnEnded):
                    await self._http.send({"type": "http.response.body", "body": b""})
                    return

    async def _send_chunk(self, data: bytes) -> None:
        await self._http.send({"type": "http.response.body", "body": data, "more_body": True})


async def watch_disconnect(http: HttpRequest, on_gone: Callable[[], None]) -> None:
    """Wait until the client disconnects, and call `on_gone`."""
    while (await http.receive())["type"] != "http.disconnect":
        continue
    on_gone()
