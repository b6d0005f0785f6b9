"""The front of an HTTP connection: a whole call that the lean lane can answer is answered here, every other request is uvicorn's.

Under load most requests are alike: the same head, a small body, a JSON answer. For those an ASGI cycle costs more than the
call itself (docs/decisions/0012). What is out of the ordinary in any way is handed to uvicorn's protocol with all its bytes,
and the connection comes back when that request has been answered.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from toolpost.endpoints.head import Head
from toolpost.pipeline import Call

KEEP_ALIVE_S: Final = 75.0
HEAD_LIMIT: Final = 16_384
BODY_LIMIT: Final = 262_144

_REQUEST_LINE: Final = b"POST /mcp HTTP/1.1\r\n"
_HEAD_END: Final = b"\r\n\r\n"
_PLAIN_HEAD: Final = re.compile(rb"POST /mcp HTTP/1\.1(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\x00]*)+\r\n\r\n")
_EVENTS: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache, no-transform\r\n"
    b"x-accel-buffering: no\r\ntransfer-encoding: chunked\r\n\r\n"
)
_LAST_CHUNK: Final = b"0\r\n\r\n"
_RESPONSE: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"


class LeanEndpoint(Protocol):
    """Whoever answers: reads a head once, and starts what it can answer alone."""

    body_limit: int

    def read_head(self, raw: bytes) -> Head | None:
        """Judge the head of a request; None leaves it to uvicorn."""
        ...

    def start(self, front: "FrontProtocol", head: Head, body: bytes) -> bool:
        """Have a request answered through `front.respond`, now or later; False leaves it to uvicorn."""
        ...


class FrontProtocol(asyncio.Protocol):
    """One connection. uvicorn makes it, as the class of protocol that it was given."""

    def __init__(
        self, config: Any, server_state: Any, app_state: Any, _loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        if not config.loaded:
            config.load()
        self._endpoint: LeanEndpoint = config.loaded_app
        self.loop = _loop or asyncio.get_running_loop()
        self._state = server_state
        self._back = _BackProtocol(self, config, server_state, app_state, self.loop)
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._head_raw = b""
        self._head: Head | None = None
        self._call: Call | None = None
        self._is_busy = False
        self._is_streaming = False
        self._answered = 0
        self._is_closing = False
        self._used_at = self.loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start serving."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class does not inherit from it
        self._state.connections.add(self)
        self._timer = self.loop.call_later(KEEP_ALIVE_S, self._close_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """In HTTP the closed response stream is the cancellation."""
        self._state.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._call is not None:
            self._call.cancel("the client is gone")

    def data_received(self, data: bytes) -> None:
        """Take what has come, unless the request before has no answer yet."""
        if self._buffer:
            data = self._buffer + data
        if self._is_busy:
            self._buffer = data
            assert self._transport is not None
            self._transport.pause_reading()
        else:
            self._take(data)

    def begin(self, call: Call) -> None:
        """Note the call that is being answered, so that a client who leaves takes it along."""
        self._call = call

    def carry(self, answering: Coroutine[Any, Any, None]) -> None:
        """Start a task that answers; whoever ends the server waits for it."""
        task = self.loop.create_task(answering)
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    def respond(self, body: bytes) -> None:
        """Send the answer, and go on with what has come meanwhile."""
        transport = self._transport
        assert transport is not None
        self._is_busy = False
        self._answered += 1
        self._call = None
        if transport.is_closing():
            return
        if self._is_streaming:
            self._is_streaming = False
            transport.write(_chunk(body) + _LAST_CHUNK)
        else:
            transport.write(_RESPONSE % (len(body), body))
        if self._is_closing:
            transport.close()
        elif self._buffer:
            transport.resume_reading()
            self.loop.call_soon(self._take_buffer)

    def sender(self) -> Callable[[bytes], None]:
        """Return what sends something before the answer of the request that is on, and nothing after it."""
        request = self._answered

        def send(raw: bytes) -> None:
            if self._answered == request:
                self._send_event(raw)

        return send

    def _send_event(self, raw: bytes) -> None:
        """Send an event; the first one makes a stream of events of the response."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if not self._is_streaming:
            self._is_streaming = True
            transport.write(_EVENTS)
        transport.write(_chunk(raw))

    def shutdown(self) -> None:
        """Close, now or after the answer that is due."""
        self._is_closing = True
        if not self._is_busy and self._transport is not None:
            self._transport.close()

    def taken_back(self) -> None:
        """Go on after uvicorn has answered what was its own."""
        assert self._transport is not None
        self._transport.set_protocol(self)
        self._state.connections.add(self)
        self._used_at = self.loop.time()
        self._timer = self.loop.call_later(KEEP_ALIVE_S, self._close_if_idle)

    def _take_buffer(self) -> None:
        data, self._buffer = self._buffer, b""
        if data and not self._is_busy:
            self._take(data)

    def _take(self, data: bytes) -> None:
        self._used_at = self.loop.time()
        head = self._head
        if head is None or not data.startswith(self._head_raw) or not head.admission.holds:
            end = data.find(_HEAD_END)
            if end < 0:
                self._wait_for_more(data)
                return
            head = self._read(data[: end + 4])
            if head is None:
                self._hand_over(data)
                return
        start = len(self._head_raw)
        total = start + head.length
        if len(data) < total:
            self._buffer = data
            return
        self._buffer = data[total:]
        self._is_busy = True
        if not self._endpoint.start(self, head, data[start:total]):
            self._is_busy = False
            self._hand_over(data)

    def _read(self, raw: bytes) -> Head | None:
        """Read a head; a client's next one is mostly the same, and is known by its bytes."""
        if len(raw) > HEAD_LIMIT or not _PLAIN_HEAD.fullmatch(raw):
            return None
        head = self._endpoint.read_head(raw[: -len(_HEAD_END)])
        if head is None or head.length > min(BODY_LIMIT, self._endpoint.body_limit):
            return None
        self._head_raw, self._head = raw, head
        return head

    def _wait_for_more(self, data: bytes) -> None:
        known = _REQUEST_LINE[: len(data)]
        if len(data) > HEAD_LIMIT or not data.startswith(known):
            self._hand_over(data)
        else:
            self._buffer = data

    def _hand_over(self, data: bytes) -> None:
        assert self._transport is not None
        self._buffer = b""
        self._state.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._back.take_over(self._transport, data)

    def _close_if_idle(self) -> None:
        idle_s = self.loop.time() - self._used_at
        if self._transport is None or self._transport.is_closing():
            return
        if not self._is_busy and idle_s >= KEEP_ALIVE_S:
            self._transport.close()
        else:
            self._timer = self.loop.call_later(max(1.0, KEEP_ALIVE_S - idle_s), self._close_if_idle)


def _chunk(raw: bytes) -> bytes:
    event = b"event: message\r\ndata: %b\r\n\r\n" % raw
    return b"%x\r\n%b\r\n" % (len(event), event)


class _BackProtocol(HttpToolsProtocol):
    """uvicorn's own protocol, for the requests that are handed to it."""

    def __init__(self, front: FrontProtocol, config: Any, server_state: Any, app_state: Any, loop: Any) -> None:
        super().__init__(config, server_state, app_state, loop)
        self._front = front
        self._is_within = False

    def take_over(self, transport: asyncio.Transport, data: bytes) -> None:
        """Serve the connection from here on."""
        transport.set_protocol(self)
        self.connection_made(transport)
        self.data_received(data)

    def on_message_begin(self) -> None:
        self._is_within = True
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._is_within = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        has_more = bool(self.pipeline)
        super().on_response_complete()
        if has_more or self._is_within or self.transport.is_closing() or not self.cycle.keep_alive:
            return
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        self._front.taken_back()
