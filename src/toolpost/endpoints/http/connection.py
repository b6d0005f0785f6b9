"""One HTTP connection: it frames every request, answers the plain ones itself, and hands every other to uvicorn.

Under load most requests are alike: the same head, a small body, a JSON answer. For those an ASGI cycle costs more than the
call itself (docs/decisions/0012). Any other request is uvicorn's, one at a time: it gets the head, and the body as it comes.

What a client can make the server keep is bounded here (docs/decisions/0041): a head has 64 KiB and `head_timeout_s`, a body its
limit and `body_timeout_s`, and a client that does not read its answers is sent no more, and cut off after a while. A connection
has one timer, which is set when a phase begins that has a deadline of its own; a plain request that comes in one piece sets none.
"""

import asyncio
import http
import re
from collections.abc import Callable, Coroutine
from enum import Enum, auto
from typing import Any, Final, Protocol, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from toolpost.contracts.errors import ErrorCode
from toolpost.endpoints.http.connection_limits import LINGER_LIMIT, Connections
from toolpost.endpoints.http.event_log import EventLog
from toolpost.endpoints.http.framing import (
    HEAD_END,
    HEAD_LIMIT,
    LINE_LIMIT,
    Counted,
    Framing,
    head_too_long,
    line_too_long,
    malformed,
    read_framing,
)
from toolpost.endpoints.http.head import Head
from toolpost.endpoints.http.refusal import Refused
from toolpost.middleware import Call

KEEP_ALIVE_S: Final = 75.0
PLAIN_HEAD_LIMIT: Final = 16_384
PLAIN_BODY_LIMIT: Final = 262_144

BODY_RATE: Final = 4_096
"""Bytes of a body for which its deadline moves by a second: 4 MiB may take 17 minutes, a byte a second half a minute."""

STALL_S: Final = 30.0
STALL_BYTES: Final = 16_384
"""A client that has an answer waiting must take as much of it in that time; else it is cut off."""

EVENTS_LIMIT: Final = 4 * 1024 * 1024
"""Bytes that may wait for a client that reads no events; they cannot be held back, so one with more is cut off."""

LINGER_S: Final = 2.0
LINGER_BYTES: Final = 262_144
LINGER_BYTES_KNOWN: Final = 16 * 1024 * 1024
"""For how long a refused client has time to read why, and how much of what it sends is read meanwhile, and dropped.

Many clients send all of a body before they read: a caller whose message is too large should learn that, a stranger need not.
"""

BUSY_S: Final = 1

_PLAIN_HEAD: Final = re.compile(
    rb"POST /mcp HTTP/1\.1(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*)+\r\n\r\n"
)
_EVENTS: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache, no-transform\r\n"
    b"x-accel-buffering: no\r\ntransfer-encoding: chunked\r\n\r\n"
)
_LAST_CHUNK: Final = b"0\r\n\r\n"
_RESPONSE: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
_OTHER_RESPONSE: Final = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
_REFUSAL: Final = (
    b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n%b\r\n%b"
)


class Phase(Enum):
    """What a connection is waiting for."""

    IDLE = auto()
    """A request; nothing of it has come."""
    HEAD = auto()
    """The rest of a head."""
    BODY = auto()
    """The rest of the body of a plain request."""
    ANSWERING = auto()
    """The answer of a plain request; what comes meanwhile is kept, and no more of it is read."""
    PASSED = auto()
    """uvicorn's answer; what comes meanwhile is the body of that request, and after it as above."""
    QUEUED = auto()
    """Its turn, with what came while the request before was answered, or until the client has read that answer."""
    LEAVING = auto()
    """Its own end: what it had to say is being written, what comes is dropped."""


_IDLE, _HEAD, _BODY, _ANSWERING, _PASSED, _QUEUED, _LEAVING = Phase


class LeanEndpoint(Protocol):
    """Whoever answers: reads a head once, and starts what it can answer alone."""

    body_limit: int

    @property
    def asks_who_calls(self) -> bool:
        """Whether a head that was admitted had a valid token."""
        ...

    def read_head(self, raw: bytes) -> Head | None:
        """Judge the head of a request; None leaves it to uvicorn."""
        ...

    def start(self, front: "FrontProtocol", head: Head, body: bytes) -> bool:
        """Have a request answered through `front.respond`, now or later; False leaves it to uvicorn."""
        ...


class FrontProtocol(asyncio.Protocol):
    """One connection. `config` and `server_state` are uvicorn's."""

    __slots__ = (
        "_answered",
        "_back",
        "_begun_at",
        "_buffer",
        "_call",
        "_config",
        "_connections",
        "_endpoint",
        "_framing",
        "_head",
        "_head_raw",
        "_is_closing",
        "_is_known",
        "_is_lingering",
        "_is_streaming",
        "_is_write_paused",
        "_limits",
        "_log",
        "_needed",
        "_phase",
        "_received",
        "_stalled_at",
        "_state",
        "_timer",
        "_timer_at",
        "_transport",
        "_unsent",
        "_used_at",
        "held",
        "loop",
    )

    def __init__(
        self, config: Any, server_state: Any, connections: Connections, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._endpoint: LeanEndpoint = config.loaded_app
        self.loop = loop
        self._config = config
        self._state = server_state
        self._connections = connections
        self._limits = connections.limits
        self._transport: asyncio.Transport | None = None
        self._back: _BackProtocol | None = None
        self._phase = _IDLE
        self._buffer = bytearray()
        self._framing: Framing = Counted(0)
        self._head_raw = b""
        self._head: Head | None = None
        self._needed = 0
        self._call: Call | None = None
        self._log: EventLog | None = None
        self._is_streaming = False
        self._answered = 0
        self._is_closing = False
        self._is_known = False
        self._is_lingering = False
        self.held = 0
        self._received = 0
        self._is_write_paused = False
        self._unsent = 0
        self._stalled_at = 0.0
        self._begun_at = self._used_at = loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    # -- the connection ----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start serving, or say that there is no room."""
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
        if self._back is not None:
            self._back.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what has come, unless the request before has no answer yet."""
        phase = self._phase
        if phase is _IDLE:
            self._take(data)
        elif phase is _HEAD:
            self._take_more_of_head(data)
        elif phase is _BODY:
            self._take_more_of_body(data)
        elif phase is _PASSED:
            self._pass_body(data)
        elif phase is not _LEAVING:
            self._keep_for_later(data)
        else:
            self._received += len(data)
            limit = LINGER_BYTES_KNOWN if self._is_known else LINGER_BYTES
            if self._received > limit and self._transport is not None:
                # It is not cut off yet: what it cannot send does not keep it from reading.
                self._transport.pause_reading()

    def pause_writing(self) -> None:
        """Start no further request for a client that does not read: its answers would pile up."""
        self._is_write_paused = True
        self._stalled_at = self.loop.time()
        self._unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        self._watch(STALL_S)
        if self._phase is _PASSED and self._back is not None:
            self._back.pause_writing()
        elif self._phase is _IDLE:
            self._next()

    def resume_writing(self) -> None:
        """Go on with a client that has read what there was."""
        self._is_write_paused = False
        if self._back is not None:
            self._back.resume_writing()
        if self._phase is _QUEUED:
            self._take_buffer()

    def shutdown(self) -> None:
        """Close, now or after the answer that is due."""
        self._is_closing = True
        if self._phase is _PASSED and self._back is not None:
            self._back.shutdown()
        elif self._phase in (_IDLE, _HEAD, _BODY, _QUEUED):
            self._close()

    # -- as it is counted --------------------------------------------------------------------------------------------------

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
        """Whether all of the request that uvicorn has has come."""
        return self._phase is not _PASSED or self._framing.is_complete

    def authenticate(self) -> None:
        """Note that a request on this connection was admitted: others no longer displace it."""
        if not self._is_known:
            self._is_known = True
            self._connections.authenticate(self)

    def note_admitted(self) -> None:
        """Take a request for authentication: by its head if that had a token, else once all of it is there."""
        if self._endpoint.asks_who_calls or self.has_whole_request:
            self.authenticate()

    def evict(self) -> None:
        """Make room for another connection, at once."""
        self._phase = _LEAVING
        self._cut_off()

    # -- answers of the fast path ------------------------------------------------------------------------------------------

    def begin(self, call: Call) -> None:
        """Note the call that is being answered, so that a client of the stateless era who leaves takes it along."""
        self._call = call

    def carry(self, answering: Coroutine[Any, Any, None]) -> None:
        """Start a task that answers; whoever ends the server waits for it."""
        task = self.loop.create_task(answering)
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    def respond(self, body: bytes, status: int = 200) -> None:
        """Send the answer, and go on with what has come meanwhile."""
        transport = self._transport
        assert transport is not None
        self._answered += 1
        self._call = None
        log, self._log = self._log, None
        last = log.end(body) if log is not None else b""
        if self._phase is not _ANSWERING or transport.is_closing():
            return
        if self._is_streaming:
            self._is_streaming = False
            transport.write(_chunk(last or _event(body)) + _LAST_CHUNK)
        elif status == 200:
            transport.write(_RESPONSE % (len(body), body))
        else:
            transport.write(_OTHER_RESPONSE % (status, _phrase(status), len(body), body))
        if self._buffer or self._is_write_paused or self._is_closing:
            self._next()
        else:
            self._phase = _IDLE

    def sender(self, open_log: Callable[[], EventLog]) -> Callable[[bytes], None]:
        """Return what sends something before the answer of the request that is on, and nothing after it.

        What is sent is kept in the log too, for a client that loses this connection; `open_log` begins it.
        """
        request = self._answered

        def send(raw: bytes) -> None:
            if self._answered == request:
                begins = self._log is None
                log = self._log = self._log or open_log()
                self._send_event((log.prime() if begins else b"") + log.add(raw))

        return send

    def _send_event(self, event: bytes) -> None:
        """Send an event; the first one makes a stream of events of the response."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if not self._is_streaming:
            self._is_streaming = True
            transport.write(_EVENTS)
        transport.write(_chunk(event))
        if self._is_write_paused and transport.get_write_buffer_size() > EVENTS_LIMIT:
            self._connections.refused.add(of="stalled")
            self._cut_off()

    # -- requests ----------------------------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        self._used_at = self.loop.time()
        head = self._head
        if head is None or not data.startswith(self._head_raw) or not head.admission.holds:
            self._begin_head(data)
        else:
            self._take_body(head, data)

    def _begin_head(self, data: bytes) -> None:
        # Some clients end a body with an empty line that is not part of it.
        data = data.lstrip(b"\r\n") if data[0] in b"\r\n" else data
        if data and not data[:1].isalpha():
            # Not HTTP at all, TLS for instance: whoever waits for more of it would wait for long.
            self.refuse(malformed("The request is not HTTP/1.1"))
            return
        end = data.find(HEAD_END)
        if end >= 0:
            self._judge_head(data, end + len(HEAD_END))
            return
        self._phase = _HEAD
        self._begun_at = self._used_at
        self._watch(self._limits.head_timeout_s)
        self._take_more_of_head(data)

    def _take_more_of_head(self, data: bytes) -> None:
        # Only what is new is searched: a head may come byte by byte.
        buffer, seen = self._buffer, len(self._buffer)
        buffer += data
        end = buffer.find(HEAD_END, max(0, seen - len(HEAD_END) + 1))
        if end >= 0:
            self._judge_head(self._taken_buffer(), end + len(HEAD_END))
        elif len(buffer) > HEAD_LIMIT:
            self.refuse(head_too_long())
        elif seen <= LINE_LIMIT < len(buffer) and buffer.find(b"\r\n", 0, LINE_LIMIT + 2) < 0:
            self.refuse(line_too_long())
        else:
            self._hold(len(buffer))

    def _judge_head(self, data: bytes, end: int) -> None:
        if end > HEAD_LIMIT:
            self.refuse(head_too_long())
            return
        raw = data[:end]
        head = self._read_plain_head(raw)
        if head is None:
            self._pass(raw, data[end:])
            return
        # A client's next head is mostly the same, and is known again by its bytes.
        self._head_raw, self._head = raw, head
        if self._endpoint.asks_who_calls:
            self.authenticate()
        self._take_body(head, data)

    def _read_plain_head(self, raw: bytes) -> Head | None:
        if len(raw) > PLAIN_HEAD_LIMIT or not _PLAIN_HEAD.fullmatch(raw):
            return None
        head = self._endpoint.read_head(raw[: -len(HEAD_END)])
        if head is None or head.length > min(PLAIN_BODY_LIMIT, self._endpoint.body_limit):
            return None
        return head

    def _take_body(self, head: Head, data: bytes) -> None:
        start = len(self._head_raw)
        total = start + head.length
        if len(data) < total:
            self._phase = _BODY
            self._needed = total
            self._begin_body()
            self._take_more_of_body(data)
            return
        self._phase = _ANSWERING
        if len(data) > total:
            self._keep_for_later(data[total:])
        if not self._is_known:
            self.authenticate()
        if not self._endpoint.start(self, head, data[start:total]):
            self._pass(self._head_raw, data[start:total])

    def _take_more_of_body(self, data: bytes) -> None:
        self._buffer += data
        self._received = len(self._buffer)
        if self._received < self._needed:
            self._hold(self._received)
            return
        assert self._head is not None
        self._take_body(self._head, self._taken_buffer())

    def _keep_for_later(self, data: bytes) -> None:
        assert self._transport is not None
        self._buffer += data
        self._transport.pause_reading()

    def _taken_buffer(self) -> bytes:
        data = bytes(self._buffer)
        self._buffer.clear()
        self._hold(0)
        return data

    def _next(self) -> None:
        """Go on after an answer: with what came meanwhile, as soon as the client has read enough, or with nothing."""
        assert self._transport is not None
        if self._is_closing:
            self._close()
        elif self._is_write_paused:
            self._phase = _QUEUED
            self._transport.pause_reading()
        elif self._buffer:
            self._phase = _QUEUED
            self.loop.call_soon(self._take_buffer)
        else:
            self._phase = _IDLE

    def _take_buffer(self) -> None:
        """Take the next request out of what came before its turn; more is read only once that is used up."""
        if self._phase is not _QUEUED or self._is_write_paused:
            return
        assert self._transport is not None
        self._phase = _IDLE
        if self._buffer:
            data = bytes(self._buffer)
            self._buffer.clear()
            self._take(data)
        is_used_up = self._phase in (_HEAD, _BODY) or not self._buffer
        if is_used_up and not (self._back is not None and self._back.flow.read_paused):
            self._transport.resume_reading()

    # -- requests of uvicorn -----------------------------------------------------------------------------------------------

    def _pass(self, head: bytes, rest: bytes) -> None:
        """Hand a request to uvicorn, with what has come of its body."""
        try:
            self._framing = read_framing(head)
        except Refused as refusal:
            self.refuse(refusal)
            return
        assert self._transport is not None
        if self._back is None:
            self._back = _BackProtocol(self, self._transport, self._config, self._state, self.loop)
        self._phase = _PASSED
        self._received = 0
        self._back.begin(head)
        if self._phase is not _PASSED:
            return
        if self._framing.is_complete:
            self._back.complete()
            if rest:
                self._keep_for_later(rest)
            return
        self._pass_body(rest)
        if not self.has_whole_request:
            self._begin_body()

    def _pass_body(self, data: bytes) -> None:
        back, framing = self._back, self._framing
        assert back is not None
        if framing.is_complete:
            self._keep_for_later(data)
            return
        try:
            body, rest = framing.feed(data)
        except Refused as refusal:
            self._break_off(refusal)
            return
        self._received += len(data)
        if body:
            back.on_body(body)
        if rest is None:
            self._hold(self._received)
            return
        self._hold(0)
        back.complete()
        if rest:
            self._keep_for_later(rest)

    def finish_passed(self) -> None:
        """Go on after uvicorn has answered."""
        if self._phase is not _PASSED:
            return
        if not self._framing.is_complete or self._is_closing:
            self.leave()
            return
        self._used_at = self.loop.time()
        self._watch(KEEP_ALIVE_S if self._is_known else self._limits.head_timeout_s)
        self._next()

    def _break_off(self, refusal: Refused) -> None:
        """Refuse a request that uvicorn has: whoever reads its body is told that the client is gone."""
        assert self._back is not None
        is_answered = self._back.drop()
        if is_answered:
            self.leave()
        else:
            self.refuse(refusal)

    # -- deadlines ---------------------------------------------------------------------------------------------------------

    def _begin_body(self) -> None:
        self._begun_at = self.loop.time()
        self._watch(self._limits.body_timeout_s)

    def _hold(self, size: int) -> None:
        if (size or self.held) and not self._connections.hold(self, size):
            self._break_off(_busy()) if self._phase is _PASSED else self.refuse(_busy())

    def _watch(self, limit_s: float) -> None:
        """Look at the deadline after so long, unless that is done sooner anyway."""
        at = self.loop.time() + limit_s
        if self._timer is not None:
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
            # The loop's clock is coarse, so that a moment may be left.
            self._watch(max(left, 0.01))
        else:
            self._expire()

    def _due(self) -> float:
        """Say when what the connection waits for must have come."""
        phase, limits, now = self._phase, self._limits, self.loop.time()
        is_read_by_us = not (self._back is not None and self._back.flow.read_paused)
        due = now + KEEP_ALIVE_S
        if self._is_write_paused:
            due = self._stalled_at + STALL_S
        elif phase is _IDLE:
            due = self._used_at + (KEEP_ALIVE_S if self._is_known else limits.head_timeout_s)
        elif phase is _HEAD:
            due = self._begun_at + limits.head_timeout_s
        elif phase is _BODY or (phase is _PASSED and not self._framing.is_complete and is_read_by_us):
            due = self._begun_at + limits.body_timeout_s + self._received / BODY_RATE
        elif phase is _LEAVING:
            has_more = self._transport is not None and self._transport.get_write_buffer_size() > 0
            due = self._begun_at + (STALL_S if has_more else LINGER_S)
        else:
            # There is none while it answers, and what it is idle for begins no earlier than now.
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
            self._break_off(refusal) if phase is _PASSED else self.refuse(refusal)

    def _expire_unread(self) -> None:
        """Cut off a client that does not read, or that was given its time to do so."""
        assert self._transport is not None
        unsent = self._transport.get_write_buffer_size()
        if unsent and unsent <= self._unsent - STALL_BYTES:
            self._unsent = unsent
            self._stalled_at = self._begun_at = self.loop.time()
            self._watch(STALL_S)
            return
        if unsent:
            self._connections.refused.add(of="stalled")
        self._cut_off()

    # -- the end -----------------------------------------------------------------------------------------------------------

    def refuse(self, refusal: Refused) -> None:
        """Answer a request that was not read to its end, and close without reading the rest."""
        transport = self._transport
        assert transport is not None
        if self._phase is _LEAVING or transport.is_closing():
            return
        self._connections.refused.add(of=str(refusal.status))
        transport.write(written(refusal))
        self.leave()

    def leave(self) -> None:
        """Close once all is written; what the client still sends is read for a moment, lest it misses why."""
        transport = self._transport
        assert transport is not None
        if self._phase is _LEAVING or transport.is_closing():
            return
        has_read_all = self._phase is _PASSED and self._framing.is_complete and not self._buffer
        self._buffer.clear()
        self._connections.hold(self, 0)
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
        """Close once all is written; a client that does not read that either is cut off."""
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


def written(refusal: Refused) -> bytes:
    """Write a refusal as the last response of a connection."""
    more = b"".join(b"%b: %b\r\n" % field for field in refusal.headers or ())
    return _REFUSAL % (refusal.status, _phrase(refusal.status), len(refusal.body), more, refusal.body)


def _event(raw: bytes) -> bytes:
    return b"event: message\r\ndata: %b\r\n\r\n" % raw


def _chunk(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


def _phrase(status: int) -> bytes:
    return http.HTTPStatus(status).phrase.encode()


def _busy() -> Refused:
    return Refused(
        503,
        ErrorCode.QUEUE_OVERLOADED,
        "There are too many connections; try again in a moment",
        headers=[(b"retry-after", b"%d" % BUSY_S)],
    )


class _BackTransport:
    """The transport as uvicorn sees it: how the connection ends is the front's decision."""

    def __init__(self, front: FrontProtocol, transport: asyncio.Transport) -> None:
        self._front = front
        self._transport = transport
        self.get_extra_info = transport.get_extra_info
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def is_closing(self) -> bool:
        """Whether anything written now would be lost."""
        return self._front.is_leaving or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Write a part of a response."""
        if not self.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Close after what has been written."""
        self._front.leave()


class _BackProtocol(HttpToolsProtocol):
    """uvicorn's own protocol, for one request at a time: it is given the head, and the body without its framing."""

    def __init__(self, front: FrontProtocol, transport: asyncio.Transport, config: Any, state: Any, loop: Any) -> None:
        super().__init__(config, state, {}, loop)
        self._front = front
        self.connection_made(_BackTransport(front, transport))  # type: ignore[arg-type]
        self.connections.discard(self)  # the front is there already

    def begin(self, head: bytes) -> None:
        """Start answering a request; its body follows through `on_body` and `complete`."""
        # A new parser for each: it has not seen the body of the one before.
        self.parser = httptools.HttpRequestParser(self)
        try:
            self.parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            pass  # There is nothing here to upgrade to: it is answered as if it had not been asked for.
        except httptools.HttpParserError:
            self._front.refuse(malformed("The request is not HTTP/1.1"))

    def complete(self) -> None:
        """Note that the body has come to its end."""
        super().on_message_complete()

    def drop(self) -> bool:
        """Tell whoever answers that the client is gone; returns whether a response has begun."""
        cycle = self.cycle
        has_begun: bool = cycle.response_started
        cycle.disconnected = True
        cycle.message_event.set()
        self.flow.resume_writing()
        return has_begun

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["connection"] = self._front  # type: ignore[typeddict-unknown-key]

    def on_message_complete(self) -> None:
        """Ignore the parser: where a request ends is the front's decision."""

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            self._front.finish_passed()
