"""One call over HTTP through ASGI: a JSON response, or server-sent events if notifications came before the answer.

In the stateless era a client that closes its response cancels its call. In the handshake era it does not: the call has a
session, goes on, and its events are kept for a client that reconnects (`event_log.py`).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable
from typing import Final

import anyio

from toolpost.endpoints.http.event_log import EventLog
from toolpost.endpoints.http.request import Receive, Send
from toolpost.endpoints.http.sessions import Session
from toolpost.middleware.call import Call

WATCH_AFTER_S: Final = 0.02
"""A call that takes longer than this gets a task that watches for its client's disconnect; most calls are spared it."""

KEEP_ALIVE_S: Final = 15.0

WAITING_BYTES: Final = 4 * 1024 * 1024
"""Notifications that may wait for a slow client; beyond that its call is cancelled."""

_JSON_TYPE: Final = (b"content-type", b"application/json")
SSE_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]

PRIVATE_HEADERS: Final = [
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
]
"""Of answers that hold a caller's data: browsers neither keep them nor let pages of other origins embed them."""


async def send_json(
    send: Send, body: bytes, *, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    fields = [_JSON_TYPE, (b"content-length", b"%d" % len(body)), *(headers or ())]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


async def send_text(send: Send, body: bytes, content_type: bytes) -> None:
    fields = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": body})


Answering = Awaitable[tuple[int, bytes]]
"""Returns the HTTP status of an answer, and its body."""


async def answer_quietly(call: Call, answering: Answering, receive: Receive, send: Send, *, outlives: bool) -> None:
    """Answer a call that sends no notifications. `outlives`: it goes on when its client disconnects."""
    loop = asyncio.get_running_loop()
    watcher: asyncio.Task[None] | None = None

    def watch() -> None:
        nonlocal watcher
        watcher = loop.create_task(_cancel_on_disconnect(call, receive))

    # A timer costs less than a task that reads from the client, and most calls end before it fires.
    timer = None if outlives else loop.call_later(WATCH_AFTER_S, watch)
    try:
        status, body = await answering
    finally:
        if timer is not None:
            timer.cancel()
        if watcher is not None:
            watcher.cancel()
    await send_json(send, body, status=status)


class EventStream:
    """A response that becomes a stream of server-sent events with the first notification."""

    def __init__(self, send: Send, session: Session | None = None) -> None:
        """`session` is the client's in the handshake era, where its events are kept; None in the stateless era."""
        self._send = send
        self._session = session
        self._log: EventLog | None = None
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._call: Call | None = None
        self._has_waiting = anyio.Event()
        self._has_started = False

    def notify(self, raw: bytes) -> None:
        """Queue a notification; `answer` sends it."""
        self._waiting.append(raw)
        self._size += len(raw)
        self._has_waiting.set()
        if self._size > WAITING_BYTES and self._call is not None:
            self._call.cancel("the client does not read its answers")

    async def answer(self, call: Call, answering: Answering, receive: Receive) -> None:
        """Send notifications as they come, then the answer."""
        self._call = call
        status, body = 200, b""

        async def run() -> None:
            nonlocal status, body
            status, body = await answering
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            if self._session is None:
                tasks.start_soon(_cancel_on_disconnect, call, receive)
            await self._send_notifications()
        await self._finish(status, body)

    async def _send_notifications(self) -> None:
        while True:
            with anyio.move_on_after(KEEP_ALIVE_S):
                await self._has_waiting.wait()
            if not self._waiting and self._has_started:
                await self._write_bytes(b": still at work\r\n\r\n")
            await self._flush()

    async def _flush(self) -> None:
        self._has_waiting = anyio.Event()
        while self._waiting:
            raw = self._waiting.popleft()
            self._size -= len(raw)
            if self._log is None and self._session is not None and self._call is not None:
                self._log = self._session.open_log(self._call)
                await self._write_bytes(self._log.prime())
            await self._write_bytes(self._log.add(raw) if self._log is not None else _event(raw))

    async def _finish(self, status: int, body: bytes) -> None:
        await self._flush()
        if not self._has_started:
            await send_json(self._send, body, status=status)
            return
        event = self._log.end(body) if self._log is not None else _event(body)
        await self._send({"type": "http.response.body", "body": event})

    async def _write_bytes(self, data: bytes) -> None:
        # Shielded: an event that is cut in half by a cancellation would corrupt the stream.
        with anyio.CancelScope(shield=True):
            if not self._has_started:
                self._has_started = True
                await self._send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
            await self._send({"type": "http.response.body", "body": data, "more_body": True})


async def resume(log: EventLog, after: int, receive: Receive, send: Send) -> None:
    """Send the rest of a stream to a client that reconnected, until the stream ends or the client disconnects."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        tasks.cancel_scope.cancel()

    await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        async for event in log.follow(after):
            await send({"type": "http.response.body", "body": event, "more_body": True})
        tasks.cancel_scope.cancel()
    await send({"type": "http.response.body", "body": b""})


async def _cancel_on_disconnect(call: Call, receive: Receive) -> None:
    """In the stateless era the closed response stream is the cancellation."""
    while (await receive())["type"] != "http.disconnect":
        continue
    call.cancel("the client is gone")


def _event(raw: bytes) -> bytes:
    return b"event: message\r\ndata: %b\r\n\r\n" % raw
