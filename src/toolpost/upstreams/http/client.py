"""A small HTTP/1.1 client for one server: pooled connections, no task per request, events passed on as they arrive.

A gateway makes all requests on one core, and general clients made 15 to 50 times fewer of them there (decision 0014), so this
one does only what MCP needs. It follows no redirects, uses no proxies, keeps no cookies, and sets no time limit on an answer: the
caller has a deadline, and cancelling closes the connection, which is how a call is cancelled in MCP over HTTP.

A request takes a slot (`max_connections`), then the idle connection that was used last, or a new one. The main hazard is an idle
connection that the server closes at the same moment. Such a request may be repeated only if no byte of it can have been read,
so a connection that was idle for a while is checked before it is used, and a write that fails at once is repeated on a new
connection. Everything else ends as `HttpFailed`, whose `sent` says whether the caller may repeat it.

Example: with two idle connections, `post` writes to the one that was used last. When the answer is complete the connection goes
back to `_idle`; one timer for all of them closes those that were not needed for `idle_s`.
"""

import asyncio
import re
import ssl
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit

from toolpost.contracts.errors import BadConfiguration
from toolpost.upstreams.http.connection import (
    FailureKind,
    HttpFailed,
    Response,
    ResponseLimits,
    UpstreamConnection,
    make_unsent_error,
)
from toolpost.upstreams.http.events import EventListener

__all__ = [
    "EventListener",
    "FailureKind",
    "HeaderLines",
    "HttpClient",
    "HttpFailed",
    "Response",
    "StartedRequest",
    "write_headers",
]

HEAD_LIMIT_BYTES: Final = 64 * 1024
BODY_LIMIT_BYTES: Final = 16 * 1024 * 1024

TRUST_LIMIT_S: Final = 0.05
"""A connection that was idle for longer is checked before it is used: the server may have closed it just now.

Others are not: the check costs a microsecond, and servers close connections that are idle for longer.
"""

_DEFAULT_HEADERS: Final = {"accept": "application/json, text/event-stream", "accept-encoding": "identity"}
_METHODS_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_RESERVED_HEADERS: Final = frozenset({b"host", b"connection", b"content-length", b"transfer-encoding"})

_is_token = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_has_control = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]").search
_has_blank = re.compile(r"[\x00-\x20\x7f]").search
_is_printable = re.compile(r"[!-~]+").fullmatch


class HeaderLines(bytes):
    """Headers that are checked and encoded already, for requests that send the same ones each time."""


class HttpClient:
    """Requests to one URL, over pooled connections. Close it with `aclose`, or use it as a context manager."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        max_connections: int = 128,
        connect_timeout_s: float = 10.0,
        idle_s: float = 60.0,
        head_limit: int = HEAD_LIMIT_BYTES,
        body_limit: int = BODY_LIMIT_BYTES,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._address = _parse_url(url)
        self._headers = _DEFAULT_HEADERS | {name.lower(): value for name, value in (headers or {}).items()}
        self._heads: dict[str, bytes] = {}
        self._limits = ResponseLimits(head=head_limit, body=body_limit)
        # Made once: loading the certificates of all authorities takes longer than a thousand calls.
        self._ssl = (ssl_context or _make_ssl_context()) if self._address.is_secure else None
        self._connect_timeout_s = connect_timeout_s
        self._idle_s = idle_s
        self._max_connections = max_connections
        self._is_closed = False
        self._outgoing: list[StartedRequest] = []
        self._busy = 0
        self._waiters: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        """Requests that wait for a slot, the first one first."""
        self._open: set[UpstreamConnection] = set()
        self._connecting: set[asyncio.Timeout] = set()
        # The one used last is taken first, so that connections that are not needed grow old on the left.
        self._idle: deque[UpstreamConnection] = deque()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Future[None] | None = None
        self._make_head("POST")  # A bad header is an error now, not at the first call.

    async def post(
        self,
        body: bytes,
        headers: Iterable[tuple[bytes, bytes]] | HeaderLines = (),
        *,
        on_event: EventListener | None = None,
    ) -> Response:
        """Send JSON and return the response; see `request`."""
        return await self.request("POST", body, headers, on_event=on_event)

    async def request(
        self,
        method: str,
        body: bytes = b"",
        headers: Iterable[tuple[bytes, bytes]] | HeaderLines = (),
        *,
        on_event: EventListener | None = None,
    ) -> Response:
        """Return the response, or raise `HttpFailed`. Events of a stream go to `on_event`; it returns at the end of the stream.

        `headers` are added to the client's own, and should not repeat one of them. What `on_event` raises ends the request and
        is raised here.
        """
        if self._is_closed:
            raise _make_closed_error(sent=False)
        request = self._write_request(method, body, headers)
        if self._busy < self._max_connections:
            self._busy += 1
        else:
            await self._wait_for_slot()
        try:
            return await self._exchange(request, on_event, is_head_method=method == "HEAD")
        finally:
            self._release_slot()

    def start(self, body: bytes, headers: HeaderLines, on_event: EventListener) -> "StartedRequest | None":
        """Send JSON if a connection is idle, else return None; `finish` must follow, or `release` if `on_result` accepts.

        If other requests are in flight, it is written together with all that are started in this turn of the loop: a server that
        gets them one by one sleeps in between, and waking it each time costs more than the call.
        """
        if self._is_closed or self._busy >= self._max_connections or (connection := self._pop_idle()) is None:
            return None
        started = StartedRequest(
            connection, self._write_request("POST", body, headers), on_event, connection.begin(on_event)
        )
        self._busy += 1
        if self._busy == 1:
            self._write(started)
        else:
            if not self._outgoing:
                asyncio.get_running_loop().call_soon(self._write_all)
            self._outgoing.append(started)
        return started

    async def finish(self, started: "StartedRequest") -> Response:
        """Return the response to a request that was started, or raise `HttpFailed`."""
        try:
            return await self._answer_on(started.connection, started.answer)
        except HttpFailed as failure:
            if failure.sent:
                raise
            return await self._exchange(started.request, started.on_event, is_head_method=False)
        finally:
            self._release_slot()

    def release(self, started: "StartedRequest") -> None:
        """Release the connection of a request whose answer `on_result` accepted."""
        self._keep(started.connection)
        self._release_slot()

    def _write_all(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        for started in outgoing:
            if not started.answer.done():
                self._write(started)

    def _write(self, started: "StartedRequest") -> None:
        if not started.connection.write(started.request):
            started.connection.drop(make_unsent_error())

    async def aclose(self) -> None:
        """Close every connection; requests in flight and waiting ones fail with `CLIENT_CLOSED`."""
        self._is_closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        while self._waiters:
            waiter, _ = self._waiters.popitem(last=False)
            if not waiter.done():
                waiter.set_exception(_make_closed_error(sent=False))
        for limit in self._connecting:
            # An expired limit makes `_connect` fail at once; whether it is over time or closed is decided there.
            if not limit.expired():
                limit.reschedule(0)
        for connection in list(self._open):
            connection.drop(_make_closed_error(sent=True))
        if self._open:
            # Sockets are closed in a later turn of the loop. Shielded: several callers of `aclose` share the future.
            self._emptied = self._emptied or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._emptied)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _write_request(self, method: str, body: bytes, headers: Iterable[tuple[bytes, bytes]] | HeaderLines) -> bytes:
        head = self._heads.get(method) or self._make_head(method)
        head += headers if isinstance(headers, HeaderLines) else write_headers(headers)
        if body or method in _METHODS_WITH_BODY:
            return b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)
        return head + b"\r\n"

    def _make_head(self, method: str) -> bytes:
        """Encode the request line and the client's own headers for a method."""
        if not _is_token(method.encode()):
            raise HttpFailed(FailureKind.BAD_REQUEST, f"no HTTP method is called {method!r}", sent=False)
        headers = {"content-type": "application/json"} if method in _METHODS_WITH_BODY else {}
        lines = [_write_configured_header(name, value) for name, value in (headers | self._headers).items()]
        first = f"{method} {self._address.target} HTTP/1.1\r\nhost: {self._address.authority}\r\n"
        self._heads[method] = first.encode() + b"".join(lines)
        return self._heads[method]

    async def _exchange(self, request: bytes, on_event: EventListener | None, *, is_head_method: bool) -> Response:
        connection = self._pop_idle() or await self._connect()
        answer = connection.begin(on_event, is_head_method=is_head_method)
        if not connection.write(request):
            # Not a byte was written, so the server has seen nothing of it.
            connection.drop()
            connection = await self._connect()
            answer = connection.begin(on_event, is_head_method=is_head_method)
            if not connection.write(request):
                connection.drop(make_unsent_error())
        return await self._answer_on(connection, answer)

    async def _answer_on(self, connection: UpstreamConnection, answer: asyncio.Future[Response]) -> Response:
        try:
            response = await answer
        except BaseException:
            connection.drop()
            raise
        self._keep(connection)
        return response

    async def _connect(self) -> UpstreamConnection:
        if self._is_closed:
            raise _make_closed_error(sent=False)
        loop = asyncio.get_running_loop()
        address = self._address
        try:
            async with asyncio.timeout(self._connect_timeout_s) as limit:
                self._connecting.add(limit)
                try:
                    _, connection = await loop.create_connection(
                        lambda: UpstreamConnection(self, self._limits, loop),
                        address.host,
                        address.port,
                        ssl=self._ssl,
                        server_hostname=address.host if self._ssl else None,
                    )
                finally:
                    self._connecting.discard(limit)
        except (OSError, UnicodeError) as error:
            raise self._make_connect_error(error) from error
        return connection

    def _make_connect_error(self, error: Exception) -> HttpFailed:
        where = self._address.authority
        if self._is_closed:
            return _make_closed_error(sent=False)
        if isinstance(error, TimeoutError) and error.errno is None:
            reason = f"cannot connect to {where} within {self._connect_timeout_s:g} s"
            return HttpFailed(FailureKind.CONNECT_TIMED_OUT, reason, sent=False)
        if isinstance(error, ssl.SSLError):
            return HttpFailed(FailureKind.TLS_FAILED, f"no secure connection to {where}: {error}", sent=False)
        return HttpFailed(FailureKind.CANNOT_CONNECT, f"cannot connect to {where}: {error}", sent=False)

    # Slots

    async def _wait_for_slot(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                # The slot was given to this request in the same turn of the loop: it goes to the next one.
                self._release_slot()
            self._waiters.pop(waiter, None)
            raise

    def _release_slot(self) -> None:
        while self._waiters:
            waiter, _ = self._waiters.popitem(last=False)
            if not waiter.done():
                waiter.set_result(None)
                return
        self._busy -= 1

    # Connections

    def note_opened(self, connection: UpstreamConnection) -> None:
        self._open.add(connection)

    def note_closed(self, connection: UpstreamConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._emptied is not None and not self._open and not self._emptied.done():
            self._emptied.set_result(None)

    def _pop_idle(self) -> UpstreamConnection | None:
        while self._idle:
            connection = self._idle.pop()
            idle_s = asyncio.get_running_loop().time() - connection.idle_since_s
            if idle_s < TRUST_LIMIT_S or not connection.has_unexpected_input():
                return connection
            connection.drop()
        return None

    def _keep(self, connection: UpstreamConnection) -> None:
        if not connection.is_reusable() or self._is_closed:
            connection.drop()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since_s = loop.time()
        self._idle.append(connection)
        if self._sweep_timer is None:
            self._sweep_timer = loop.call_later(self._idle_s, self._sweep)

    def _sweep(self) -> None:
        """Close connections that were idle for `idle_s`. One timer serves all of them, so that a request needs none."""
        loop = asyncio.get_running_loop()
        self._sweep_timer = None
        while self._idle and self._idle[0].idle_since_s + self._idle_s <= loop.time():
            self._idle.popleft().drop()
        if self._idle:
            self._sweep_timer = loop.call_at(self._idle[0].idle_since_s + self._idle_s, self._sweep)


class StartedRequest(NamedTuple):
    """A request that was started before a task awaits its answer."""

    connection: UpstreamConnection
    request: bytes
    on_event: EventListener
    answer: asyncio.Future[Response]


@dataclass(frozen=True, kw_only=True)
class _Address:
    is_secure: bool
    host: str
    port: int
    authority: str
    target: str


def _parse_url(url: str) -> _Address:
    # Python's parser silently removes such characters, and the result is another URL.
    if _has_blank(url):
        raise _make_url_error("it contains spaces or control characters")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna" if not url.isascii() else "ascii").decode(), parts.port
    except ValueError:
        raise _make_url_error("it cannot be parsed") from None
    if parts.scheme not in {"http", "https"}:
        raise _make_url_error("it must begin with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise _make_url_error("it contains a user name or password", hint="send credentials in a header instead")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not _is_printable(host) or not _is_printable(target):
        raise _make_url_error("it has no host, or characters that must be percent-encoded")
    default = 443 if parts.scheme == "https" else 80
    port = default if port is None else port
    name = f"[{host.partition('%')[0]}]" if ":" in host else host
    return _Address(
        is_secure=parts.scheme == "https",
        host=host,
        port=port,
        authority=name if port == default else f"{name}:{port}",
        target=target,
    )


def _make_url_error(why: str, *, hint: str = "write it as http://host:port/path") -> BadConfiguration:
    # The URL itself is left out: it may contain a secret.
    return BadConfiguration(f"the URL of an upstream cannot be used: {why}", hint=hint)


def _write_configured_header(name: str, value: str) -> bytes:
    try:
        return _write_header(name.encode("ascii"), value.strip().encode("latin-1"))
    except (HttpFailed, UnicodeError):
        # The value is left out: it may be a secret.
        raise BadConfiguration(
            f"the header {name!r} of an upstream cannot be sent",
            hint="use a plain name, and a value without line breaks; host and content-length are set for you",
        ) from None


def _write_header(name: bytes, value: bytes) -> bytes:
    """Encode a header; raises `HttpFailed` if it could be read as several, or changes where the request ends."""
    if not _is_token(name) or name.lower() in _RESERVED_HEADERS or _has_control(value):
        raise HttpFailed(FailureKind.BAD_REQUEST, f"the header {name!r} cannot be sent", sent=False)
    return b"%b: %b\r\n" % (name, value)


def write_headers(headers: Iterable[tuple[bytes, bytes]]) -> HeaderLines:
    """Check and encode headers; raises `HttpFailed` for one that cannot be sent."""
    return HeaderLines(b"".join(_write_header(name, value) for name, value in headers))


def _make_ssl_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _make_closed_error(*, sent: bool) -> HttpFailed:
    return HttpFailed(FailureKind.CLIENT_CLOSED, "the client is closed", sent=sent)
