"""One HTTP connection: its phases, deadlines and end. Plain requests are answered here, every other is forwarded to uvicorn.

Under load most requests are alike: the same head, a small body, a JSON answer. For those an ASGI cycle costs more than the
call itself (docs/decisions/0012). Any other request is forwarded to uvicorn, one at a time: it gets the head, and the body as
it arrives.

A typical client opens a connection and sends `POST /mcp` with a `tools/call`. The head is parsed once (`_take_head`) and
kept (`plain_requests`); the next request starts with the same bytes, so that only its body is parsed (`_take`), the endpoint
starts the call (`start`), and `respond` writes its answer (`responses`). A `GET`, or a call with a progress token, goes to
uvicorn on the same connection (`_forward`, `forwarding`).

The buffers of a client are bounded here (docs/decisions/0041): a head has 64 KiB and `head_timeout_s`, a body
its limit and `body_timeout_s`, and a client that does not read its answers gets no more of them, and is cut off after a
while. A connection has one timer, which is set when a phase with a deadline of its own begins; a plain request that arrives
in one piece sets none.
"""

import asyncio
from collections.abc import Callable, Coroutine
from enum import Enum, auto
from typing import Any, ClassVar, Final, Protocol, cast

from toolpost.contracts.errors import ErrorCode
from toolpost.endpoints.http.connection_limits import LINGER_LIMIT, Connections
from toolpost.endpoints.http.event_log import EventLog
from toolpost.endpoints.http.forwarding import Forwarding
from toolpost.endpoints.http.framing import HEAD_LIMIT, head_too_long, read_framing
from toolpost.endpoints.http.head import RequestHead
from toolpost.endpoints.http.plain_requests import HeadReader, PlainRequests
from toolpost.endpoints.http.refusal import Refused
from toolpost.endpoints.http.responses import (
    LAST_CHUNK,
    write_chunk,
    write_event,
    write_refusal,
    write_response,
    write_stream_head,
)
from toolpost.middleware import Call

KEEP_ALIVE_S: Final = 75.0

BODY_RATE: Final = 4_096
"""Bytes of a body for which its deadline moves by a second: 4 MiB may take 17 minutes, a byte a second half a minute."""

STALL_S: Final = 30.0
STALL_BYTES: Final = 16_384
"""A client with an answer waiting must read this much of it in `STALL_S`, or is cut off."""

EVENTS_LIMIT: Final = 4 * 1024 * 1024
"""Bytes that may wait for a client that does not read its events. They cannot be paused, so beyond this it is cut off."""

LINGER_S: Final = 2.0
LINGER_BYTES: Final = 262_144
LINGER_BYTES_ADMITTED: Final = 64 * 1024 * 1024
LINGER_RATE: Final = 65_536
"""How long a refused client has to read the refusal, and how much of what it still sends is read and dropped.

Many clients send all of a body before they read: an admitted caller whose message is too large should learn that, as long as it
sends `LINGER_RATE` bytes a second; any other need not.
"""

BUSY_S: Final = 1


class Phase(Enum):
    """The phase of a connection: what it waits for."""

    IDLE = auto()
    """A request; nothing of it has arrived."""
    HEAD = auto()
    """The rest of a head."""
    BODY = auto()
    """The rest of the body of a plain request."""
    ANSWERING = auto()
    """The answer of a plain request. What arrives now is buffered once, then reading is paused."""
    FORWARDED = auto()
    """uvicorn's answer. What arrives now is the body of that request, and after its end as above."""
    QUEUED = auto()
    """Its turn, with what arrived while the last request was answered, or until the client has read that answer."""
    LEAVING = auto()
    """Its own end: the last response is being written, what arrives is dropped."""


_IDLE, _HEAD, _BODY, _ANSWERING, _FORWARDED, _QUEUED, _LEAVING = Phase


class PlainEndpoint(HeadReader, Protocol):
    """The endpoint as a connection uses it: it parses a head once, and starts the requests that need no ASGI."""

    @property
    def requires_token(self) -> bool:
        """Whether a head that was admitted had a valid token."""
        ...

    def start(self, connection: "ServerConnection", head: RequestHead, body: bytes) -> bool:
        """Have a request answered through `connection.respond`, now or later; False leaves it to uvicorn."""
        ...


class ServerConnection(asyncio.Protocol):
    """The protocol of one connection. `config` and `server_state` are uvicorn's."""

    __slots__ = (
        "_answered",
        "_begun_at",
        "_buffer",
        "_call",
        "_config",
        "_connections",
        "_endpoint",
        "_forwarding",
        "_is_authenticated",
        "_is_closing",
        "_is_lingering",
        "_is_streaming",
        "_is_too_large",
        "_is_write_paused",
        "_limits",
        "_log",
        "_phase",
        "_plain",
        "_received",
        "_stalled_at",
        "_state",
        "_timer",
        "_timer_at",
        "_transport",
        "_unsent",
        "_used_at",
        "buffered",
        "loop",
        "request_id",
    )

    def __init__(
        self, config: Any, server_state: Any, connections: Connections, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._endpoint: PlainEndpoint = config.loaded_app
        self.loop = loop
        self._config = config
        self._state = server_state
        self._connections = connections
        self._limits = connections.limits
        self._transport: asyncio.Transport | None = None
        self._forwarding: Forwarding | None = None
        self._phase = _IDLE
        self._plain = PlainRequests(self._endpoint)
        self._buffer = self._plain.buffer
        """What has arrived and is not used yet, in every phase."""
        self._call: Call | None = None
        self._log: EventLog | None = None
        self._is_streaming = False
        self._answered = 0
        self.request_id = ""
        """The id of the request that the fast path answers, which its response carries; for a call its own id."""
        self._is_closing = False
        self._is_authenticated = False
        self._is_lingering = False
        self._is_too_large = False
        self.buffered = 0
        self._received = 0
        self._is_write_paused = False
        self._unsent = 0
        self._stalled_at = 0.0
        self._begun_at = self._used_at = loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    # -- transport events --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start serving, or answer with a 503 if there is no room."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class does not inherit from it
        self._state.connections.add(self)
        peer = transport.get_extra_info("peername")
        if self._connections.open(self, peer[0] if peer else None):
            self._watch(self._limits.head_timeout_s)
        else:
            self.refuse(_busy())

    def connection_lost(self, exc: Exception | None) -> None:
        """In the stateless era the closed response stream is the cancellation."""
        self._phase = _LEAVING
        self._state.connections.discard(self)
        self._connections.close(self)
        self._connections.lingering -= self._is_lingering
        if self._timer is not None:
            self._timer.cancel()
        self._buffer.clear()
        if self._call is not None:
            self._call.cancel("the client is gone")
        if self._forwarding is not None:
            self._forwarding.lose_connection(exc)

    def data_received(self, data: bytes) -> None:
        if self._phase is _IDLE:  # nearly always: a look into the table takes longer
            self._take(data)
        else:
            self._receivers[self._phase](self, data)

    def pause_writing(self) -> None:
        """Start no further request for a client that does not read: its answers would pile up."""
        self._is_write_paused = True
        self._stalled_at = self.loop.time()
        self._unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        self._watch(STALL_S)
        if self._phase is _FORWARDED and self._forwarding is not None:
            self._forwarding.pause_writing()
        elif self._phase is _IDLE:
            self._next()

    def resume_writing(self) -> None:
        """Continue with a client that has read what was written."""
        self._is_write_paused = False
        if self._forwarding is not None:
            self._forwarding.resume_writing()
        if self._phase is _QUEUED:
            self._take_buffer()

    def shutdown(self) -> None:
        """Close, now or after the answer that is due."""
        self._is_closing = True
        if self._phase is _FORWARDED and self._forwarding is not None:
            self._forwarding.shutdown()
        elif self._phase in (_IDLE, _HEAD, _BODY, _QUEUED):
            self._close()

    def end_stream(self) -> None:
        """End a response of uvicorn's that has begun: to its handler the client has disconnected."""
        if self._phase is _FORWARDED and self._forwarding is not None and self._forwarding.has_begun:
            self._forwarding.drop()
            self.leave()

    # -- connection limits -------------------------------------------------------------------------------------------------

    @property
    def idle_since(self) -> float | None:
        """When its last request began, if it is not answering one."""
        return self._used_at if self._phase is _IDLE else None

    @property
    def is_leaving(self) -> bool:
        """Whether it will answer nothing more."""
        return self._phase is _LEAVING

    @property
    def has_whole_request(self) -> bool:
        """Whether all of the request that uvicorn has was received."""
        return self._forwarding is None or self._phase is not _FORWARDED or self._forwarding.has_whole_request

    def authenticate(self) -> None:
        """Note that a request on this connection was admitted: others no longer displace it."""
        if not self._is_authenticated:
            self._is_authenticated = True
            self._connections.authenticate(self)

    def note_admitted(self) -> None:
        """Count as authenticated: by the head if that had a token, else once all of the request was received."""
        if self._endpoint.requires_token or self.has_whole_request:
            self.authenticate()

    def note_too_large(self) -> None:
        """Read the rest of a body that is refused for its size, and drop it: its client may send all of it before it reads."""
        self._is_too_large = True

    @property
    def _may_send_on(self) -> bool:
        """Whether a refused client may send the rest of its body before it reads the refusal."""
        return self._is_authenticated or self._is_too_large

    def evict(self) -> None:
        """Close at once, to make room for another connection."""
        self._phase = _LEAVING
        self._cut_off()

    # -- answers of the fast path ------------------------------------------------------------------------------------------

    def set_call(self, call: Call) -> None:
        """Set the call that is being answered: it is cancelled if a client of the stateless era disconnects."""
        self._call = call

    def start_task(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Start a task that answers; a shutdown of the server waits for it."""
        task = self.loop.create_task(coroutine)
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    def respond(self, body: bytes, status: int = 200) -> None:
        """Send the answer, and continue with what has arrived since."""
        transport = self._transport
        assert transport is not None
        self._answered += 1
        self._call = None
        log, self._log = self._log, None
        # The answer is logged even if the connection is gone: a client of the handshake era may come back for it.
        last = log.end(body) if log is not None else b""
        if self._phase is not _ANSWERING or transport.is_closing():
            return
        if self._is_streaming:
            self._is_streaming = False
            transport.write(write_chunk(last or write_event(body)) + LAST_CHUNK)
        else:
            transport.write(write_response(status, self.request_id, body))
        if self._buffer or self._is_write_paused or self._is_closing:
            self._next()
        else:  # the common case, without a call
            self._phase = _IDLE

    def sender(self, open_log: Callable[[], EventLog]) -> Callable[[bytes], None]:
        """Return a function that sends events before the answer of the current request, and nothing after it.

        The events are kept in a log too, for a client that loses this connection; `open_log` begins it.
        """
        # The number of answers so far identifies the request: a late event must not end up in the response of the next one.
        request = self._answered

        def send(raw: bytes) -> None:
            if self._answered == request:
                begins = self._log is None
                log = self._log = self._log or open_log()
                self._send_event((log.prime() if begins else b"") + log.add(raw))

        return send

    def _send_event(self, event: bytes) -> None:
        """Send an event; the first one makes the response a stream of events."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if not self._is_streaming:
            self._is_streaming = True
            transport.write(write_stream_head(self.request_id))
        transport.write(write_chunk(event))
        if self._is_write_paused and transport.get_write_buffer_size() > EVENTS_LIMIT:
            self._connections.refused.add(of="stalled")
            self._cut_off()

    # -- requests ----------------------------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        self._used_at = self.loop.time()
        plain = self._plain
        if plain.is_same(data):
            self._take_body(data)
            return
        # Some clients send an empty line after a body, which is not part of it.
        data = data.lstrip(b"\r\n") if data[0] in b"\r\n" else data
        try:
            end = plain.find_head(data)
        except Refused as refusal:
            self.refuse(refusal)
            return
        if end is not None:
            self._take_head(data, end)
            return
        self._phase = _HEAD
        self._begun_at = self._used_at
        self._watch(self._limits.head_timeout_s)
        self._take_more_of_head(data)

    def _take_more_of_head(self, data: bytes) -> None:
        try:
            end = self._plain.add_to_head(data)
        except Refused as refusal:
            self.refuse(refusal)
            return
        if end is None:
            self._set_buffered(len(self._buffer))
        else:
            self._take_head(self._empty_buffer(), end)

    def _take_head(self, data: bytes, end: int) -> None:
        if end > HEAD_LIMIT:
            self.refuse(head_too_long())
        elif self._plain.read_head(raw := data[:end]) is None:
            self._forward(raw, data[end:])
        else:
            if self._endpoint.requires_token:
                self.authenticate()
            self._take_body(data)

    def _take_body(self, data: bytes) -> None:
        """Take a plain request with the remembered head; wait for the rest of its body if that is incomplete."""
        plain = self._plain
        total, head = plain.size, plain.head
        assert head is not None
        if len(data) < total:
            self._phase = _BODY
            self._begin_body()
            self._take_more_of_body(data)
            return
        self._phase = _ANSWERING
        if len(data) > total:
            self._keep_for_later(data[total:])
        if not self._is_authenticated:
            self.authenticate()
        body = data[plain.body_at : total]
        if not self._endpoint.start(self, head, body):
            self._forward(plain.head_bytes, body)

    def _take_more_of_body(self, data: bytes) -> None:
        self._buffer += data
        self._received = len(self._buffer)
        if self._received < self._plain.size:
            self._set_buffered(self._received)
        else:
            self._take_body(self._empty_buffer())

    def _keep_for_later(self, data: bytes) -> None:
        assert self._transport is not None
        self._buffer += data
        self._transport.pause_reading()

    def _empty_buffer(self) -> bytes:
        data = self._plain.take_buffer()
        self._set_buffered(0)
        return data

    def _next(self) -> None:
        """Continue after an answer: with what was buffered, once the client has read enough, or by waiting for a request."""
        assert self._transport is not None
        if self._is_closing:
            self._close()
        elif self._is_write_paused:
            self._phase = _QUEUED
            self._transport.pause_reading()
        elif self._buffer:
            self._phase = _QUEUED
            # Not at once: a client that pipelines a thousand requests would recurse, and keep the loop from others.
            self.loop.call_soon(self._take_buffer)
        else:
            self._phase = _IDLE

    def _take_buffer(self) -> None:
        """Take the next request out of the buffer; more is read only once that is used up."""
        if self._phase is not _QUEUED or self._is_write_paused:
            return
        assert self._transport is not None
        self._phase = _IDLE
        if self._buffer:
            self._take(self._plain.take_buffer())
        is_used_up = self._phase in (_HEAD, _BODY) or not self._buffer
        if is_used_up and not (self._forwarding is not None and self._forwarding.is_reading_paused):
            self._transport.resume_reading()

    # -- forwarding to uvicorn ---------------------------------------------------------------------------------------------

    def _forward(self, head: bytes, rest: bytes) -> None:
        """Forward a request to uvicorn, with what has arrived of its body."""
        try:
            framing = read_framing(head)
        except Refused as refusal:
            self.refuse(refusal)
            return
        assert self._transport is not None
        if self._forwarding is None:
            self._forwarding = Forwarding(self, self._transport, self._config, self._state, self.loop)
        self._phase = _FORWARDED
        self._received = 0
        self._forwarding.begin(head, framing)
        if self._phase is not _FORWARDED:
            return  # the parser refused the head
        if framing.is_complete:
            self._forwarding.complete()
            if rest:
                self._keep_for_later(rest)
            return
        self._forward_body(rest)
        if not self.has_whole_request:
            self._begin_body()

    def _forward_body(self, data: bytes) -> None:
        assert self._forwarding is not None
        if self._forwarding.has_whole_request:
            self._keep_for_later(data)
            return
        try:
            rest = self._forwarding.feed(data)
        except Refused as refusal:
            self._abort_forwarded(refusal)
            return
        self._received += len(data)
        self._set_buffered(self._received if rest is None else 0)
        if rest:
            self._keep_for_later(rest)

    def finish_forwarded(self) -> None:
        """Continue after uvicorn has answered."""
        if self._phase is not _FORWARDED:
            return
        if not self.has_whole_request or self._is_closing:
            self.leave()
            return
        self._used_at = self.loop.time()
        self._watch(KEEP_ALIVE_S if self._is_authenticated else self._limits.head_timeout_s)
        self._next()

    def _abort_forwarded(self, refusal: Refused) -> None:
        """Refuse a request that uvicorn has: to its handler the client has disconnected."""
        assert self._forwarding is not None
        self._forwarding.drop()
        if self._forwarding.has_begun:
            self.leave()
        else:
            self.refuse(refusal)

    # -- deadlines ---------------------------------------------------------------------------------------------------------

    def _begin_body(self) -> None:
        self._begun_at = self.loop.time()
        self._watch(self._limits.body_timeout_s)

    def _set_buffered(self, size: int) -> None:
        if (size or self.buffered) and not self._connections.set_buffered(self, size):
            self._abort_forwarded(_busy()) if self._phase is _FORWARDED else self.refuse(_busy())

    def _watch(self, limit_s: float) -> None:
        """Check the deadline after this time, unless an earlier check is set."""
        at = self.loop.time() + limit_s
        if self._timer is not None:
            # A timer that fires too early looks again. Moving it for every request would cost more.
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer = self.loop.call_later(limit_s, self._check_deadline)
        self._timer_at = at

    def _check_deadline(self) -> None:
        self._timer = None
        if self._transport is None:
            return
        due = self._due()
        left = due - self.loop.time()
        if left > 0:
            # The loop's clock is coarse: a timer may fire a little early.
            self._watch(max(left, 0.01))
        else:
            self._expire()

    def _due(self) -> float:
        """Return when what the connection waits for must have arrived."""
        phase, limits, now = self._phase, self._limits, self.loop.time()
        is_read_by_us = not (self._forwarding is not None and self._forwarding.is_reading_paused)
        due = now + KEEP_ALIVE_S
        if self._is_write_paused:
            due = self._stalled_at + STALL_S
        elif phase is _IDLE:
            due = self._used_at + (KEEP_ALIVE_S if self._is_authenticated else limits.head_timeout_s)
        elif phase is _HEAD:
            due = self._begun_at + limits.head_timeout_s
        elif phase is _BODY or (phase is _FORWARDED and not self.has_whole_request and is_read_by_us):
            due = self._begun_at + limits.body_timeout_s + self._received / BODY_RATE
        elif phase is _LEAVING:
            has_more = self._transport is not None and self._transport.get_write_buffer_size() > 0
            sending_s = self._received / LINGER_RATE if self._may_send_on else 0.0
            due = self._begun_at + (STALL_S if has_more else LINGER_S + sending_s)
        else:
            # Answering has no deadline here (the call has its own), and idle time begins no earlier than now.
            self._used_at = now
        return due

    def _expire(self) -> None:
        phase = self._phase
        if self._is_write_paused or phase is _LEAVING:
            self._expire_unread()
        elif phase is _IDLE:
            self._close()
        else:
            self._connections.refused.add(of="slow")
            what = "headers" if phase is _HEAD else "body"
            refusal = Refused(408, ErrorCode.INVALID_REQUEST, f"The {what} of the request did not come in time")
            self._abort_forwarded(refusal) if phase is _FORWARDED else self.refuse(refusal)

    def _expire_unread(self) -> None:
        """Cut off a client that does not read, or whose time to read a refusal is over."""
        assert self._transport is not None
        unsent = self._transport.get_write_buffer_size()
        # It has read something since the last look: it is slow, not gone.
        if unsent and unsent <= self._unsent - STALL_BYTES:
            self._unsent = unsent
            self._stalled_at = self._begun_at = self.loop.time()
            self._watch(STALL_S)
            return
        if unsent:
            self._connections.refused.add(of="stalled")
        self._cut_off()

    def _drop(self, data: bytes) -> None:
        """Drop what a client still sends after its last response, up to a limit."""
        self._received += len(data)
        limit = LINGER_BYTES_ADMITTED if self._may_send_on else LINGER_BYTES
        if self._received > limit and self._transport is not None:
            # It is not closed yet: the client may still read its refusal.
            self._transport.pause_reading()

    # -- closing -----------------------------------------------------------------------------------------------------------

    def refuse(self, refusal: Refused) -> None:
        """Answer a request that was not read to its end, and close without reading the rest."""
        transport = self._transport
        assert transport is not None
        if self._phase is _LEAVING or transport.is_closing():
            return
        self._connections.refused.add(of=str(refusal.status))
        transport.write(write_refusal(refusal))
        self.leave()

    def leave(self) -> None:
        """Close once all is written. What the client still sends is read for a moment: closing at once would reset the
        connection, and the client might lose the response.
        """
        transport = self._transport
        assert transport is not None
        if self._phase is _LEAVING or transport.is_closing():
            return
        has_read_all = self._phase is _FORWARDED and self.has_whole_request and not self._buffer
        self._buffer.clear()
        self._connections.set_buffered(self, 0)
        if has_read_all or self._connections.lingering >= LINGER_LIMIT or not transport.can_write_eof():
            self._close()
            return
        self._phase = _LEAVING
        self._is_lingering = True
        self._connections.lingering += 1
        self._received = 0
        transport.write_eof()
        transport.resume_reading()
        self._begin_leaving()

    def _close(self) -> None:
        """Close once all is written; a client that does not read it is cut off."""
        assert self._transport is not None
        self._phase = _LEAVING
        self._transport.close()
        self._begin_leaving()

    def _begin_leaving(self) -> None:
        assert self._transport is not None
        self._begun_at = self.loop.time()
        self._unsent = self._transport.get_write_buffer_size()
        self._watch(LINGER_S)

    def _cut_off(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    _receivers: ClassVar[dict[Phase, Callable[["ServerConnection", bytes], None]]] = {
        _IDLE: _take,
        _HEAD: _take_more_of_head,
        _BODY: _take_more_of_body,
        _ANSWERING: _keep_for_later,
        _FORWARDED: _forward_body,
        _QUEUED: _keep_for_later,
        _LEAVING: _drop,
    }
    """The handler of arriving bytes for each phase of the connection."""


def _busy() -> Refused:
    return Refused(
        503,
        ErrorCode.QUEUE_OVERLOADED,
        "There are too many connections; try again in a moment",
        headers=[(b"retry-after", b"%d" % BUSY_S)],
    )
