"""One HTTP/1.1 connection, which carries one request at a time. Part of `client`, which chooses the connection.

It is an asyncio protocol: the event loop calls `buffer_updated` and `connection_lost`, and the parser of httptools calls `on_*`
in between. An answer is complete, and the future resolved, only after the parser has seen all bytes that were read: whatever
follows an answer must not be taken for the next one, so the connection is closed then.
"""

import asyncio
import re
import select
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, cast

import httptools
import msgspec

from toolpost.net.events import EventListener, EventReader, EventTooLarge

READ_BYTES: Final = 64 * 1024
EVENTS_READ_BYTES: Final = 16 * 1024
STREAM_CLOSE_DELAY_S: Final = 0.25
"""How long an event stream may stay open after the answer; then it is closed, and its connection with it."""

_FIRST_FINAL_STATUS: Final = 200

KEEP_ALIVE_SHARE: Final = 0.8
"""An idle connection is not used in the last part of the time for which the server keeps one open."""

_BYTES_ACKED: Final = struct.Struct("120xQ")
"""`tcpi_bytes_acked` in the `tcp_info` of Linux, since 4.1."""

_find_timeout = re.compile(rb"(?:^|[,;\s])timeout=(\d{1,6})(?:$|[,;\s])", re.IGNORECASE).search


class FailureKind(StrEnum):
    CANNOT_CONNECT = "cannot_connect"
    TLS_FAILED = "tls_failed"
    CONNECT_TIMED_OUT = "connect_timed_out"
    CONNECTION_LOST = "connection_lost"
    MALFORMED_ANSWER = "malformed_answer"
    TOO_LARGE = "too_large"
    BAD_REQUEST = "bad_request"
    CLIENT_CLOSED = "client_closed"


_HINTS: Final = {
    FailureKind.CANNOT_CONNECT: "check the host and port of its `url`, that it runs, and that this machine is online",
    FailureKind.CONNECT_TIMED_OUT: "check the host and port of its `url`, and that this machine is online",
    FailureKind.TLS_FAILED: "check its certificate, or whether its `url` should begin with http://",
    FailureKind.TOO_LARGE: "ask for less in one call: a page, a filter, a part of the file",
}


class HttpFailed(Exception):
    """A request got no answer. `sent` says whether the server may have seen it: only one that was not sent is safe to repeat."""

    def __init__(self, kind: FailureKind, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.sent = sent
        self.hint = _HINTS.get(kind)
        self.last_event_id = b""


class Response(msgspec.Struct, frozen=True):
    """A response of any status. Header names are in lower case; the body of an event stream is empty."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes = b""
    last_event_id: bytes = b""
    retry_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class ResponseLimits:
    """Limits in bytes, for a head (or trailer), and for a body or one event."""

    head: int
    body: int
    is_compressed: bool = False
    """Whether a body may be compressed; the limit is that of its compressed form then."""


class ConnectionOwner(Protocol):
    """Is notified of connections that open and close."""

    def note_opened(self, connection: "UpstreamConnection", /) -> None: ...

    def note_closed(self, connection: "UpstreamConnection", /) -> None: ...


class UpstreamConnection(asyncio.BufferedProtocol):
    """A connection that carries one request at a time.

    It reads into its own buffer of 64 KiB: event loops read 256 KiB at once, and that many events can hold up the loop for
    longer than one turn should take.
    """

    def __init__(self, owner: ConnectionOwner, limits: ResponseLimits, loop: asyncio.AbstractEventLoop) -> None:
        self.idle_since_s = 0.0
        self._owner = owner
        self._limits = limits
        self.loop = loop
        self._parser = httptools.HttpResponseParser(self)
        self.answer: asyncio.Future[Response] | None = None
        """The answer to the request in flight; None if there is none."""
        self._close_timer: asyncio.TimerHandle | None = None
        self.on_answer: Callable[[Response], bool] | None = None
        """Called with the answer before the future is resolved; True accepts it, and ends the request."""
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._acked_before: int | None = None
        """How many bytes the server's system had received before the request; None if that is not known."""
        self._reset(None, is_head_method=False)

    def _reset(self, on_event: EventListener | None, *, is_head_method: bool) -> None:
        self.on_answer = None
        self._on_event = on_event
        self._is_head_method = is_head_method
        self._status = 0
        self._headers: dict[bytes, bytes] = {}
        self._body: bytes | bytearray = b""
        self._unread = 0
        self._events: EventReader | None = None
        self._response: Response | None = None
        self._is_in_body = False
        self._is_keeping = False
        self._is_written = False

    def begin(self, on_event: EventListener | None, *, is_head_method: bool = False) -> asyncio.Future[Response]:
        """Prepare for a request, which `write` must follow; returns the future of its answer."""
        self._reset(on_event, is_head_method=is_head_method)
        self.answer = self.loop.create_future()
        return self.answer

    def write(self, request: bytes) -> bool:
        """Write the request; False if not a byte of it was written, so that there will be no answer."""
        transport = self._transport
        if not transport.is_closing():
            transport.write(request)
        # asyncio tries to write at once; a transport that closes on that has written nothing.
        self._is_written = not transport.is_closing()
        return self._is_written

    def is_reusable(self) -> bool:
        """Whether the answer is complete and the connection stays open, so that another request may follow."""
        return self._is_keeping and self._response is not None and not self._transport.is_closing()

    def has_unexpected_input(self) -> bool:
        """Whether an idle connection is readable, which the event loop has not reported yet: mostly it was closed."""
        if self._transport.is_closing():
            return True
        if sys.platform == "win32":
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def may_be_used(self, idle_s: float, *, limit_s: float) -> bool:
        """Whether a connection that was idle for this long seems to be open, and is not about to be closed.

        The server closes those that are idle for `limit_s`, as far as is known, or for the time that it has stated.
        """
        if (stated := _find_timeout(self._headers.get(b"keep-alive", b""))) is not None:
            limit_s = min(limit_s, int(stated[1]))
        if idle_s > limit_s * KEEP_ALIVE_SHARE:
            return False
        self._acked_before = self._read_acked()
        return not self.has_unexpected_input()

    def _read_acked(self) -> int | None:
        if sys.platform != "linux":
            return None
        try:
            info = self._transport.get_extra_info("socket").getsockopt(
                socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.size
            )
            return int(_BYTES_ACKED.unpack(info)[0])
        except (OSError, struct.error):
            return None

    def _was_not_received(self, cause: Exception | None) -> bool:
        """Whether the server closed an idle connection before its system had received a byte of the request.

        It closed its side properly, and what it acknowledges then is all that it had received: nothing since before the request.
        A reset proves nothing, because what it acknowledges is not noted: the server may have read the request.
        """
        is_end = cause is None and self._status == 0 and self._unread == 0
        return is_end and self._acked_before is not None and self._read_acked() == self._acked_before

    def drop(self, failure: BaseException | None = None) -> None:
        """Close at once; the future of the answer, if any, gets the failure."""
        self._transport.abort()
        if self._close_timer is not None:
            self._close_timer.cancel()
            self._close_timer = None
        answer, self.answer = self.answer, None
        if failure is not None and answer is not None and not answer.done():
            if isinstance(failure, HttpFailed) and self._events is not None:
                failure.last_event_id = self._events.last_id
            answer.set_exception(failure)

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._owner.note_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        # A body without a length, and without chunks, ends with the connection.
        if self.answer is not None and self._response is None:
            has_all = self._events is not None and self._events.is_enough
            if has_all or (exc is None and self._ends_with_connection()):
                self._complete()
                self._resolve()
            else:
                was_sent = self._is_written and not self._was_not_received(exc)
                self.drop(_make_lost_error(self._status, exc, sent=was_sent))
        self._owner.note_closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        # A stream may be nothing but tiny events, each of which its listener decodes.
        return self._buffer if self._events is None else self._buffer[:EVENTS_READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        if self.answer is None or self.answer.done() or not self._is_written:
            # Bytes without a request in flight: they must not become the beginning of the next answer.
            self.drop(make_unsent_error())
            return
        self._unread += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._handle_parser_error(error)
        if self._response is not None:
            self._resolve()
        elif self._unread > self._limits.head:
            self.drop(_make_size_error("head", self._limits.head))

    # Called by the parser

    def on_message_begin(self) -> None:
        if self._response is not None:
            raise _make_malformed_error("there is more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_body:
            return  # a trailer
        name, value = name.lower(), value.rstrip()
        before = self._headers.get(name)
        self._headers[name] = value if before is None else before + b", " + value

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._status < _FIRST_FINAL_STATUS:
            return
        if self._unread > self._limits.head:
            # The bytes counted so far may include a part of the body.
            head_bytes = sum(len(name) + len(value) + 4 for name, value in self._headers.items())
            if head_bytes > self._limits.head:
                raise _make_size_error("head", self._limits.head)
        self._unread = 0
        self._is_in_body = True
        self._is_keeping = self._parser.should_keep_alive()
        if self._headers.get(b"content-type", b"").lower().startswith(b"text/event-stream"):
            self._events = EventReader(self._limits.body, self._on_event)
        if not self._limits.is_compressed and self._headers.get(b"content-encoding", b"identity") != b"identity":
            raise _make_malformed_error(f"status {self._status} with a body that was compressed unasked")
        if self._is_head_method:
            # The parser cannot be told that no body follows, so the connection cannot be used again.
            self._is_keeping = False
            self._complete()

    def on_body(self, data: bytes) -> None:
        self._unread = 0
        if self._events is not None:
            try:
                self._events.feed(data)
            except EventTooLarge:
                raise _make_size_error("event", self._limits.body) from None
            if self._events.is_enough and self._close_timer is None:
                self._close_timer = self.loop.call_later(STREAM_CLOSE_DELAY_S, self._end_stream)
            return
        if len(self._body) + len(data) > self._limits.body:
            raise _make_size_error("body", self._limits.body)
        if not self._body:
            self._body = data
        else:
            if isinstance(self._body, bytes):
                # Not a list of parts: if they are single bytes, a list takes forty times the memory.
                self._body = bytearray(self._body)
            self._body += data

    def on_message_complete(self) -> None:
        if self._status >= _FIRST_FINAL_STATUS:
            self._complete()
        else:
            # An interim response (1xx): the final one follows.
            self._headers = {}

    def _end_stream(self) -> None:
        """Complete the answer although the event stream is still open: its listener needs no further event."""
        if self.answer is not None and self._response is None:
            self._is_keeping = False
            self._complete()
            self._resolve()

    def _complete(self) -> None:
        if self._close_timer is not None:
            self._close_timer.cancel()
            self._close_timer = None
        if self._events is not None:
            events = self._events
            self._response = Response(self._status, self._headers, b"", events.last_id, events.retry_ms)
            return
        self._response = Response(self._status, self._headers, bytes(self._body))

    def _resolve(self) -> None:
        """Resolve the future of the answer, or have `on_answer` accept it."""
        assert self.answer is not None
        assert self._response is not None
        # A server that answers before it has read the whole request may read the rest of it as the next one.
        if not self._is_keeping or self._transport.get_write_buffer_size():
            self._is_keeping = False
            self._transport.abort()
        if self.answer.done():
            return
        answer, self.answer = self.answer, None
        if self.on_answer is None or not self.on_answer(self._response):
            self.answer = answer
            answer.set_result(self._response)

    def _handle_parser_error(self, error: Exception) -> None:
        self._is_keeping = False
        if self._response is not None:
            return
        if isinstance(error, httptools.HttpParserCallbackError) and error.__context__ is not None:
            # Raised in a callback above, or by the event listener: it is raised to the caller of the request.
            self.drop(error.__context__)
        else:
            self.drop(_make_malformed_error(str(error)))

    def _ends_with_connection(self) -> bool:
        return (
            self._is_in_body
            and b"content-length" not in self._headers
            and b"chunked" not in self._headers.get(b"transfer-encoding", b"").lower()
        )


def _make_lost_error(status: int, cause: Exception | None, *, sent: bool) -> HttpFailed:
    when = f"in the middle of its answer (status {status})" if status else "before it answered"
    detail = f": {cause}" if cause else ""
    return HttpFailed(FailureKind.CONNECTION_LOST, f"the server closed the connection {when}{detail}", sent=sent)


def make_unsent_error() -> HttpFailed:
    return HttpFailed(
        FailureKind.CONNECTION_LOST, "the server closed a connection that was just to be used", sent=False
    )


def _make_malformed_error(reason: str) -> HttpFailed:
    return HttpFailed(FailureKind.MALFORMED_ANSWER, f"the answer is not proper HTTP: {reason}", sent=True)


def _make_size_error(part: str, limit: int) -> HttpFailed:
    return HttpFailed(FailureKind.TOO_LARGE, f"the answer's {part} has more than {limit} bytes, the limit", sent=True)
