"""One HTTP/1.1 connection: a request goes out, its answer comes back. Which connection is taken is decided elsewhere.

Part of `http_client`, which is the one front door: only it and its other parts import this.
"""

import asyncio
import select
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, cast

import httptools
import msgspec

from toolpost.upstreams.http.events import EventListener, EventReader, EventTooLarge

READ_BYTES: Final = 64 * 1024
STREAM_LINGER_S: Final = 0.25
"""How long an event stream may stay open behind what was waited for: then it is closed, and its connection with it."""

_FIRST_FINAL_STATUS: Final = 200


class FailureKind(StrEnum):
    """Why there is no answer."""

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
}


class HttpFailed(Exception):
    """A request got no answer.

    `sent` says whether the server may have seen the request: only one that was not sent is safe to repeat.
    """

    def __init__(self, kind: FailureKind, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.sent = sent
        self.hint = _HINTS.get(kind)
        self.last_event_id = b""


class Response(msgspec.Struct, frozen=True):
    """An answer, whatever its status. Header names are in lower case; the body of an event stream is empty."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes = b""
    last_event_id: bytes = b""
    retry_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class ResponseLimits:
    """How much a server may say: in a head (or trailer), and in a body or one event."""

    head: int
    body: int


class ConnectionOwner(Protocol):
    """Whoever keeps the connections."""

    def joined(self, connection: "Connection", /) -> None:
        """Take note of a connection that opened."""

    def left(self, connection: "Connection", /) -> None:
        """Take note of a connection that is gone."""


class Connection(asyncio.BufferedProtocol):
    """A connection that carries one request at a time.

    It reads into a buffer of its own: what comes at once is told at once, and 256 KB of events, as a loop would read
    otherwise, can take it far longer than a turn should.
    """

    def __init__(self, home: ConnectionOwner, limits: ResponseLimits, loop: asyncio.AbstractEventLoop) -> None:
        self.idle_since_s = 0.0
        self._home = home
        self._limits = limits
        self._loop = loop
        self._parser = httptools.HttpResponseParser(self)
        self.answer: asyncio.Future[Response] | None = None
        """To what was sent last; None if that is over."""
        self._lingering: asyncio.TimerHandle | None = None
        self.take_ahead: Callable[[Response], bool] | None = None
        """Is told the answer to what was just sent before whoever waits for it, and says whether that was the end of it."""
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._reset(None, is_head_method=False)

    def _reset(self, on_event: EventListener | None, *, is_head_method: bool) -> None:
        """Forget the answer before."""
        self.take_ahead = None
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
        """Return what the `answer` will be in to a request that is about to be written."""
        self._reset(on_event, is_head_method=is_head_method)
        self.answer = self._loop.create_future()
        return self.answer

    def write(self, request: bytes) -> bool:
        """Write the request; False if not a byte of it could be written, and the answer never comes."""
        transport = self._transport
        if not transport.is_closing():
            transport.write(request)
        # A write that failed at once wrote nothing.
        self._is_written = not transport.is_closing()
        return self._is_written

    def is_reusable(self) -> bool:
        """Whether the answer came to its proper end, and another request may follow it."""
        return self._is_keeping and self._response is not None and not self._transport.is_closing()

    def has_unexpected_input(self) -> bool:
        """Whether something came while nobody asked, which the loop has not told yet: the end, most likely."""
        if self._transport.is_closing():
            return True
        if sys.platform == "win32":
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def drop(self, failure: BaseException | None = None) -> None:
        """Close at once; whoever waits is told why."""
        self._transport.abort()
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        answer, self.answer = self.answer, None
        if failure is not None and answer is not None and not answer.done():
            if isinstance(failure, HttpFailed) and self._events is not None:
                failure.last_event_id = self._events.last_id
            answer.set_exception(failure)

    # What the loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._home.joined(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End: for an answer without a length, this is how it ends properly."""
        if self.answer is not None and self._response is None:
            has_all = self._events is not None and self._events.is_enough
            if has_all or (exc is None and self._ends_with_connection()):
                self._complete()
                self._resolve()
            else:
                self.drop(_make_lost_error(self._status, exc, sent=self._is_written))
        self._home.left(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Say where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        self.data_received(bytes(self._buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Read a part of the answer."""
        if self.answer is None or self.answer.done() or not self._is_written:
            # Nobody asked, or nobody waits any more: whatever it is, the next answer must not begin with it.
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

    # What the parser tells

    def on_message_begin(self) -> None:
        """Refuse an answer that nobody asked for."""
        if self._response is not None:
            raise _make_malformed_error("there is more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers are not for us."""
        if self._is_in_body:
            return
        name, value = name.lower(), value.rstrip()
        before = self._headers.get(name)
        self._headers[name] = value if before is None else before + b", " + value

    def on_headers_complete(self) -> None:
        """Decide how the body is to be read."""
        self._status = self._parser.get_status_code()
        if self._status < _FIRST_FINAL_STATUS:
            return
        if self._unread > self._limits.head:
            self._check_head()
        self._unread = 0
        self._is_in_body = True
        self._is_keeping = self._parser.should_keep_alive()
        if self._headers.get(b"content-type", b"").lower().startswith(b"text/event-stream"):
            self._events = EventReader(self._limits.body, self._on_event)
        if self._headers.get(b"content-encoding", b"identity") != b"identity":
            raise _make_malformed_error(f"status {self._status} with a body that was compressed unasked")
        if self._is_head_method:
            # The parser cannot be told that no body follows, so it is of no more use.
            self._is_keeping = False
            self._complete()

    def on_body(self, data: bytes) -> None:
        """Collect a part of the body, or tell the events in it."""
        self._unread = 0
        if self._events is not None:
            try:
                self._events.feed(data)
            except EventTooLarge:
                raise _make_size_error("event", self._limits.body) from None
            if self._events.is_enough and self._lingering is None:
                self._lingering = self._loop.call_later(STREAM_LINGER_S, self._end_stream)
            return
        if len(self._body) + len(data) > self._limits.body:
            raise _make_size_error("body", self._limits.body)
        if not self._body:
            self._body = data
        else:
            if isinstance(self._body, bytes):
                # Not a list of parts: of single bytes that would take forty times the room.
                self._body = bytearray(self._body)
            self._body += data

    def on_message_complete(self) -> None:
        """Note that the answer is whole, or only an interim one (1xx) that the real one follows."""
        if self._status >= _FIRST_FINAL_STATUS:
            self._complete()
        else:
            self._headers = {}

    # The steps

    def _end_stream(self) -> None:
        """Take what has come for the answer: nobody waits for what may follow."""
        if self.answer is not None and self._response is None:
            self._is_keeping = False
            self._complete()
            self._resolve()

    def _complete(self) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        if self._events is not None:
            events = self._events
            self._response = Response(self._status, self._headers, b"", events.last_id, events.retry_ms)
            return
        self._response = Response(self._status, self._headers, bytes(self._body))

    def _resolve(self) -> None:
        """Hand the answer over: after the parser has seen all bytes, since what follows it spoils the connection."""
        assert self.answer is not None
        assert self._response is not None
        # A server may answer before it has read the request, and then reads the rest of it as the next one.
        if not self._is_keeping or self._transport.get_write_buffer_size():
            self._is_keeping = False
            self._transport.abort()
        if self.answer.done():
            return
        answer, self.answer = self.answer, None
        if self.take_ahead is None or not self.take_ahead(self._response):
            self.answer = answer
            answer.set_result(self._response)

    def _handle_parser_error(self, error: Exception) -> None:
        self._is_keeping = False
        if self._response is not None:
            return
        if isinstance(error, httptools.HttpParserCallbackError) and error.__context__ is not None:
            # Ours, or the listener's own: it reaches whoever made the request.
            self.drop(error.__context__)
        else:
            self.drop(_make_malformed_error(str(error)))

    def _check_head(self) -> None:
        # The bytes counted so far may hold a part of the body.
        if sum(len(name) + len(value) + 4 for name, value in self._headers.items()) > self._limits.head:
            raise _make_size_error("head", self._limits.head)

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
    """Say that a connection was of no use."""
    return HttpFailed(
        FailureKind.CONNECTION_LOST, "the server closed a connection that was just to be used", sent=False
    )


def _make_malformed_error(reason: str) -> HttpFailed:
    return HttpFailed(FailureKind.MALFORMED_ANSWER, f"the answer is not proper HTTP: {reason}", sent=True)


def _make_size_error(part: str, limit: int) -> HttpFailed:
    return HttpFailed(FailureKind.TOO_LARGE, f"the answer's {part} has more than {limit} bytes, the limit", sent=True)
