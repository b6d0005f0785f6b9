"""A turn as server-sent events: each as it comes, its end the last. Whoever goes away, or reads no more, is noticed."""

from collections import deque
from collections.abc import Callable
from typing import Final

import anyio

from toolpost.base.turns import TurnEnded, TurnEvent, encode_event
from toolpost.endpoints.http.exchange import SSE_HEADERS
from toolpost.endpoints.http.request import Receive, Send

KEEP_ALIVE_S: Final = 15.0
WAITING_LIMIT: Final = 50_000
"""Events that may wait for a client that reads slowly; one who lets more come together is taken to be gone."""


class TurnStream:
    """What a client is told, in order; it may be slow, and nobody waits for it."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._waiting: deque[TurnEvent] = deque()
        self._news = anyio.Event()
        self._has_fallen_behind = anyio.Event()

    def tell(self, event: TurnEvent) -> None:
        """Queue an event."""
        if len(self._waiting) >= WAITING_LIMIT:
            self._waiting.clear()
            self._has_fallen_behind.set()
        if not self._has_fallen_behind.is_set():
            self._waiting.append(event)
            self._news.set()

    async def serve(self, *, until_end: bool, on_gone: Callable[[], None]) -> None:
        """Send what comes, until the end of the turn or for as long as the client is there."""
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                while (await self._receive())["type"] != "http.disconnect":
                    continue
                leave()

            async def measure() -> None:
                await self._has_fallen_behind.wait()
                leave()

            def leave() -> None:
                on_gone()
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            tasks.start_soon(measure)
            await self._send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
            await self._send_all(until_end=until_end)
            tasks.cancel_scope.cancel()

    async def _send_all(self, *, until_end: bool) -> None:
        while True:
            with anyio.move_on_after(KEEP_ALIVE_S):
                await self._news.wait()
            self._news = anyio.Event()
            if not self._waiting:
                await self._write(b": still here\n\n")
            while self._waiting:
                event = self._waiting.popleft()
                await self._write(_written(event))
                if until_end and isinstance(event, TurnEnded):
                    await self._send({"type": "http.response.body", "body": b""})
                    return

    async def _write(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})


def _written(event: TurnEvent) -> bytes:
    kind = event.__struct_config__.tag
    assert isinstance(kind, str)
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), encode_event(event))
