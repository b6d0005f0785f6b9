"""A small HTTP/1.1 client for one server: pooled connections, no task per request, events passed on as they arrive.

A gateway makes all requests on one core, and general clients made 15 to 50 times fewer of them there (decision 0014), so this
one does only what MCP needs. It follows no redirects, keeps no cookies, and sets no time limit on an answer: the
caller has a deadline, and cancelling closes the connection, which is how a call is cancelled in MCP over HTTP.

A request takes a slot (`max_connections`), then the idle connection that was used last, or a new one. The main hazard is an idle
connection that the server closes at the same moment. Such a request may be repeated only if no byte of it can have been read,
so a connection that was idle for a while is checked before it is used, one that the server is about to close is not used, and a
request is repeated on a new connection if its write fails at once, or if the server had closed the old one before any byte
arrived there (Linux can tell). Everything else ends as `HttpFailed`, whose `sent` says whether the caller may repeat it.

Example: with two idle connections, `post` writes to the one that was used last. When the answer is complete the connection goes
back to `_idle`; one timer for all of them closes those that were not needed for `idle_s`.
"""

import asyncio
import base64
import math
import re
import socket
import ssl
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from toolpost.base.urls import split_url
from toolpost.contracts.errors import BadConfiguration
from toolpost.net.connection import (
    FailureKind,
    HttpFailed,
    Response,
    ResponseLimits,
    UpstreamConnection,
    make_unsent_error,
)
from toolpost.net.events import EventListener
from toolpost.net.network import DIRECT, Network

__all__ = [
    "EventListener",
    "FailureKind",
    "HeaderLines",
    "HttpClient",
    "HttpFailed",
    "Response",
    "StartedRequest",
    "open_tunnel_blocking",
    "write_headers",
]

HEAD_LIMIT_BYTES: Final = 64 * 1024
BODY_LIMIT_BYTES: Final = 16 * 1024 * 1024
HOST_LIMIT: Final = 255
"""Characters: that many bytes has a name in DNS. To encode one that is not ASCII takes 5 ms for each thousand."""


TRUST_LIMIT_S: Final = 0.05
"""A connection that was idle for longer is checked before it is used: the server may have closed it just now.

Others are not: the check costs a microsecond, and servers close connections that are idle for longer.
"""

LEARNED_S: Final = 600.0
"""How long it is remembered after which idle time a server closes connections: it may have closed them because it was stopped."""

LEARNED_LIMIT: Final = 1_000
LEAST_IDLE_S: Final = 1.0
"""A connection that was closed sooner was not closed for being idle."""

_DEFAULT_HEADERS: Final = {"accept": "application/json, text/event-stream", "accept-encoding": "identity"}
_METHODS_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_RESERVED_HEADERS: Final = frozenset({b"host", b"connection", b"content-length", b"transfer-encoding"})

_is_token = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_has_control = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]").search
_has_blank = re.compile(r"[\x00-\x20\x7f]").search
_is_printable = re.compile(r"[!-~]+").fullmatch


class HeaderLines(bytes):
    """Headers that are checked and encoded already, for requests that send the same ones each time."""


class _IdleTimes:
    """After which idle time servers close connections, as it was seen: for all clients of a server, each with a credential."""

    def __init__(self) -> None:
        self._by_address: OrderedDict[tuple[str, int], tuple[float, float]] = OrderedDict()

    def note_close(self, address: "_Address", idle_s: float, now: float) -> None:
        """Record that a server closed a connection that was idle for this long."""
        if idle_s < LEAST_IDLE_S:
            return
        key = address.host, address.port
        self._by_address[key] = min(idle_s, self.find(address, now)), now
        self._by_address.move_to_end(key)
        if len(self._by_address) > LEARNED_LIMIT:
            self._by_address.popitem(last=False)

    def find(self, address: "_Address", now: float) -> float:
        """Return the idle time after which a server closes connections; infinity if it is not known."""
        idle_s, noted_at = self._by_address.get((address.host, address.port), (math.inf, now))
        return idle_s if now < noted_at + LEARNED_S else math.inf


_idle_times: Final = _IdleTimes()


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
        network: Network = DIRECT,
        resolve: Callable[[str, int], Awaitable[str]] | None = None,
        is_compressed: bool = False,
    ) -> None:
        """`network` has certificates and the proxy; `ssl_context` replaces its certificates.

        With `is_compressed`, bodies may be compressed, and are returned as they came.

        `resolve` returns the address to connect to for a host and port, or raises; without it the system resolves them. Behind a
        proxy it is not asked: the proxy resolves names.
        """
        self._address = _parse_url(url)
        proxy = network.find_proxy(url)
        self._proxy = _parse_proxy(proxy) if proxy is not None else None
        self._headers = _DEFAULT_HEADERS | {name.lower(): value for name, value in (headers or {}).items()}
        self._heads: dict[str, bytes] = {}
        if is_compressed:
            self._headers = {"accept-encoding": "gzip, deflate"} | {
                name: value for name, value in self._headers.items() if name != "accept-encoding"
            }
        self._limits = ResponseLimits(head=head_limit, body=body_limit, is_compressed=is_compressed)
        # Made once: loading the certificates of all authorities takes longer than a thousand calls.
        self._ssl = (ssl_context or network.make_ssl_context()) if self._address.is_secure else None
        self._resolve = resolve
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
        target: str | None = None,
    ) -> Response:
        """Return the response, or raise `HttpFailed`. Events of a stream go to `on_event`; it returns at the end of the stream.

        `headers` are added to the client's own, and should not repeat one of them. What `on_event` raises ends the request and
        is raised here. `target` is another path and query at the same origin; the type of its body is among `headers`.
        """
        if self._is_closed:
            raise _make_closed_error(sent=False)
        request = self._write_request(method, body, headers, target)
        if self._busy < self._max_connections:
            self._busy += 1
        else:
            await self._wait_for_slot()
        try:
            return await self._exchange(request, on_event, is_head_method=method == "HEAD")
        finally:
            self._release_slot()

    def start(self, body: bytes, headers: HeaderLines, on_event: EventListener) -> "StartedRequest | None":
        """Send JSON if a connection is idle, else return None; `finish` must follow, or `release` if `on_answer` accepts.

        If other requests are in flight, it is written together with all that are started in this turn of the loop: a server that
        gets them one by one sleeps in between, and waking it each time costs more than the call.
        """
        if self._is_closed or self._busy >= self._max_connections or not self._idle:
            return None
        request = self._write_request("POST", body, headers)  # which may raise: no connection is taken yet
        if (connection := self._pop_idle()) is None:
            return None
        started = StartedRequest(connection, request, on_event, connection.begin(on_event))
        self._busy += 1
        if self._busy == 1:
            self._write(started)
        else:
            if not self._outgoing:
                connection.loop.call_soon(self._write_all)
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
        """Release the connection of a request whose answer `on_answer` accepted."""
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

    def set_header(self, name: str, value: str | None) -> None:
        """Replace a header of all further requests; None removes it. Raises `BadConfiguration` for one that cannot be sent."""
        if value is not None:
            _write_configured_header(name, value)  # before it replaces one that can be sent
        self._headers.pop(name, None)
        if value is not None:
            self._headers[name] = value
        self._heads.clear()
        self._make_head("POST")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _write_request(
        self,
        method: str,
        body: bytes,
        headers: Iterable[tuple[bytes, bytes]] | HeaderLines,
        target: str | None = None,
    ) -> bytes:
        if target is not None:
            head = self._make_head_for(method, target, self._headers)
        else:
            head = self._heads.get(method) or self._make_head(method)
        head += headers if isinstance(headers, HeaderLines) else write_headers(headers)
        if body or method in _METHODS_WITH_BODY:
            return b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)
        return head + b"\r\n"

    def _make_head(self, method: str) -> bytes:
        """Encode the request line and the client's own headers for a method, and keep them."""
        headers = {"content-type": "application/json"} if method in _METHODS_WITH_BODY else {}
        self._heads[method] = self._make_head_for(method, self._address.target, headers | self._headers)
        return self._heads[method]

    def _make_head_for(self, method: str, target: str, headers: Mapping[str, str]) -> bytes:
        if not _is_token(method.encode()):
            raise HttpFailed(FailureKind.BAD_REQUEST, f"no HTTP method is called {method!r}", sent=False)
        if not target.startswith("/") or not _is_printable(target):
            # With a space or a line break in it, the rest would be read as another request.
            raise HttpFailed(FailureKind.BAD_REQUEST, "the target is no path, or not percent-encoded", sent=False)
        lines = [_write_configured_header(name, value) for name, value in headers.items()]
        if self._is_forwarded:
            # To an HTTP proxy, a request without TLS is sent whole: most proxies make tunnels to port 443 alone.
            target = f"http://{self._address.authority}{target}"
            lines += [self._proxy.authorization] if self._proxy is not None else []
        first = f"{method} {target} HTTP/1.1\r\nhost: {self._address.authority}\r\n"
        return first.encode() + b"".join(lines)

    async def _exchange(self, request: bytes, on_event: EventListener | None, *, is_head_method: bool) -> Response:
        if (idle := self._pop_idle()) is not None:
            try:
                return await self._exchange_on(idle, request, on_event, is_head_method=is_head_method)
            except HttpFailed as failure:
                # The server has seen nothing of a request that was not sent.
                if failure.sent or self._is_closed:
                    raise
        return await self._exchange_on(await self._connect(), request, on_event, is_head_method=is_head_method)

    async def _exchange_on(
        self, connection: UpstreamConnection, request: bytes, on_event: EventListener | None, *, is_head_method: bool
    ) -> Response:
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

    @property
    def _is_forwarded(self) -> bool:
        return self._proxy is not None and self._proxy.scheme == "http" and not self._address.is_secure

    async def _connect(self) -> UpstreamConnection:
        if self._is_closed:
            raise _make_closed_error(sent=False)
        loop = asyncio.get_running_loop()
        address = self._address
        try:
            async with asyncio.timeout(self._connect_timeout_s) as limit:
                self._connecting.add(limit)
                try:
                    at: dict[str, Any] = {"host": address.host, "port": address.port}
                    if self._proxy is not None and self._is_forwarded:
                        at = {"host": self._proxy.host, "port": self._proxy.port}
                    elif self._proxy is not None:
                        at = {"sock": await self._proxy.open_tunnel(address.host, address.port)}
                    elif self._resolve is not None:
                        at["host"] = await self._resolve(address.host, address.port)
                    _, connection = await loop.create_connection(
                        lambda: UpstreamConnection(self, self._limits, loop),
                        **at,
                        ssl=self._ssl,
                        server_hostname=address.host if self._ssl else None,
                    )
                finally:
                    self._connecting.discard(limit)
        except (OSError, UnicodeError) as error:
            raise self._make_connect_error(error) from error
        return connection

    def _make_connect_error(self, error: Exception) -> HttpFailed:
        where = self._address.authority + (f" through the proxy {self._proxy.shown}" if self._proxy is not None else "")
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
            if not self._is_closed:
                now = asyncio.get_running_loop().time()
                _idle_times.note_close(self._address, now - connection.idle_since_s, now)
        if self._emptied is not None and not self._open and not self._emptied.done():
            self._emptied.set_result(None)

    def _pop_idle(self) -> UpstreamConnection | None:
        while self._idle:
            connection = self._idle.pop()
            now = connection.loop.time()
            idle_s = now - connection.idle_since_s
            if idle_s < TRUST_LIMIT_S or connection.may_be_used(idle_s, limit_s=_idle_times.find(self._address, now)):
                return connection
            connection.drop()
        return None

    def _keep(self, connection: UpstreamConnection) -> None:
        if not connection.is_reusable() or self._is_closed:
            connection.drop()
            return
        connection.idle_since_s = connection.loop.time()
        self._idle.append(connection)
        if self._sweep_timer is None:
            self._sweep_timer = connection.loop.call_later(self._idle_s, self._sweep)

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
        parts = split_url(url)
        name, port = parts.hostname or "", parts.port
        if len(name) > HOST_LIMIT:
            raise _make_url_error("its host name is too long")
        host = name.encode("idna" if not url.isascii() else "ascii").decode()
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


class _Proxy(NamedTuple):
    """A proxy, and how it is authenticated to."""

    scheme: str
    host: str
    port: int
    username: str | None
    password: str | None

    @property
    def shown(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def authorization(self) -> bytes:
        """The header that authenticates a forwarded request; empty without a user."""
        if self.username is None:
            return b""
        pair = base64.b64encode(f"{self.username}:{self.password or ''}".encode())
        return b"proxy-authorization: Basic %b\r\n" % pair

    async def open_tunnel(self, host: str, port: int) -> socket.socket:
        """Return a socket that the proxy has connected to a host; raises `OSError`."""
        from python_socks import ProxyError
        from python_socks.async_.asyncio import Proxy

        try:
            return await Proxy(**self._as_options()).connect(host, port)
        except ProxyError as error:
            raise ConnectionRefusedError(str(error)) from error

    def open_tunnel_blocking(self, host: str, port: int, timeout_s: float | None) -> socket.socket:
        """As `open_tunnel`, for commands without an event loop."""
        from python_socks import ProxyError
        from python_socks.sync import Proxy

        try:
            return Proxy(**self._as_options()).connect(host, port, timeout=timeout_s)
        except ProxyError as error:
            raise ConnectionRefusedError(str(error)) from error

    def _as_options(self) -> dict[str, Any]:
        from python_socks import ProxyType

        kinds = {"http": ProxyType.HTTP, "socks4": ProxyType.SOCKS4}
        return {
            "proxy_type": kinds.get(self.scheme, ProxyType.SOCKS5),
            "host": self.host,
            "port": self.port,
            "username": self.username,
            "password": self.password,
            # As curl has it: with `socks5h` the proxy resolves names, with the others this machine does.
            "rdns": self.scheme in ("http", "socks5h"),
        }


def open_tunnel_blocking(proxy: str, host: str, port: int, timeout_s: float | None) -> socket.socket:
    """Return a socket that a proxy, given by its URL, has connected to a host; raises `OSError`."""
    return _parse_proxy(proxy).open_tunnel_blocking(host, port, timeout_s)


def _parse_proxy(url: str) -> _Proxy:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    username = None if parts.username is None else unquote(parts.username)
    password = None if parts.password is None else unquote(parts.password)
    return _Proxy(parts.scheme, parts.hostname, parts.port, username, password)


def _make_closed_error(*, sent: bool) -> HttpFailed:
    return HttpFailed(FailureKind.CLIENT_CLOSED, "the client is closed", sent=sent)
