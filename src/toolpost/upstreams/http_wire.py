"""A server over streamable HTTP: one client with kept connections, one POST a request, events as they come."""

import asyncio
import base64
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.contracts.events import event
from toolpost.contracts.ids import JsonObject
from toolpost.upstreams.http_client import HttpClient
from toolpost.upstreams.http_connection import HttpFailed, Response
from toolpost.upstreams.peer import Incoming, read_message, refusal_of
from toolpost.upstreams.spec import ServerSpec
from toolpost.upstreams.wire import Notice, ServerRefused, WireLost, encode, parameters

_log = logging.getLogger("toolpost.upstreams")

_ALWAYS = ((b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream"))


@asynccontextmanager
async def open_http_server(
    spec: ServerSpec, *, on_notice: Notice, on_gone: Callable[[str], None]
) -> AsyncIterator["HttpWire"]:
    """Keep a client for the server; nothing is sent until somebody asks."""
    assert spec.url is not None
    async with HttpClient(spec.url, headers=spec.headers) as client:
        wire = HttpWire(spec.name, client, on_notice=on_notice)
        listening = asyncio.create_task(wire.listen(on_gone))
        try:
            yield wire
        finally:
            listening.cancel()
            await wire.leave()


class HttpWire:
    """Requests to one HTTP server, in either era."""

    def __init__(self, server: str, client: HttpClient, *, on_notice: Notice) -> None:
        self._server = server
        self._client = client
        self._on_notice = on_notice
        self._ids = itertools.count(1)
        self._envelope: JsonObject = {}
        self._headers: tuple[tuple[bytes, bytes], ...] = _ALWAYS
        self._session: bytes | None = None
        self._is_modern = False
        self._has_session = asyncio.Event()

    def use(self, *, envelope: JsonObject, headers: Mapping[str, str]) -> None:
        """Carry this in every request."""
        self._envelope = envelope
        self._is_modern = bool(envelope)
        own = tuple((name.encode(), value.encode()) for name, value in headers.items())
        session = ((b"mcp-session-id", self._session),) if self._session else ()
        self._headers = (*_ALWAYS, *own, *session)

    async def request(
        self,
        method: str,
        fields: bytes = b"",
        *,
        meta: JsonObject | None = None,
        name: str | None = None,
        on_notice: Notice | None = None,
    ) -> bytes:
        """Ask, and return the JSON of the result."""
        number = next(self._ids)
        carried = self._envelope | (meta or {})
        if on_notice is not None:
            carried["progressToken"] = number
        body = b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}' % (
            number,
            encode(method),
            parameters(fields, carried),
        )
        exchange = _Exchange(self._server, number, on_notice or self._on_notice, self._on_notice)
        try:
            response = await self._post(body, self._headers_for(method, name), exchange)
        except asyncio.CancelledError:
            self._call_off(number)
            raise
        if exchange.answer is not None:
            self._note_session(method, response)
            return _result_of(exchange.answer)
        return self._read(method, number, response)

    async def notify(self, method: str, fields: bytes = b"") -> None:
        """Tell the server something."""
        body = b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (encode(method), parameters(fields, {}))
        await self._post(body, self._headers_for(method, None), None)

    async def listen(self, on_gone: Callable[[str], None]) -> None:
        """Hold the stream on which a server of the handshake era speaks by itself, where it has one."""
        await self._has_session.wait()
        while True:
            try:
                response = await self._client.request("GET", headers=self._headers, on_event=self._take)
            except HttpFailed as failure:
                event(_log, logging.DEBUG, "event stream lost", server=self._server, reason=str(failure))
                await asyncio.sleep(1.0)
                continue
            if response.status == 404:
                on_gone(f"`{self._server}` has forgotten our session")
                return
            if response.status != 200:
                return
            await asyncio.sleep(0.2)

    async def leave(self) -> None:
        """Close the session, as a polite client does."""
        if self._session is None:
            return
        try:
            await asyncio.wait_for(self._client.request("DELETE", headers=self._headers), 1.0)
        except (HttpFailed, TimeoutError) as error:
            event(_log, logging.DEBUG, "session not closed", server=self._server, reason=str(error))

    def _headers_for(self, method: str, name: str | None) -> tuple[tuple[bytes, bytes], ...]:
        if not self._is_modern:
            return self._headers
        routing = ((b"mcp-method", method.encode()),)
        return (*self._headers, *routing, (b"mcp-name", header_value(name))) if name else (*self._headers, *routing)

    async def _post(
        self, body: bytes, headers: tuple[tuple[bytes, bytes], ...], exchange: "_Exchange | None"
    ) -> Response:
        try:
            return await self._client.post(body, headers, on_event=exchange.take if exchange else None)
        except HttpFailed as failure:
            raise WireLost(str(failure), was_sent=failure.sent) from failure

    def _read(self, method: str, number: int, response: Response) -> bytes:
        """Make a result, or the right error, of a response without events."""
        message = read_message(response.body)
        if message is not None and message.method is None and message.id in (number, None):
            if bytes(message.error):
                raise refusal_of(bytes(message.error))
            if response.status == 200 and message.id == number:
                self._note_session(method, response)
                return _result_of(message)
        raise self._failure(method, response)

    def _failure(self, method: str, response: Response) -> Exception:
        status = response.status
        if status == 404 and self._session is not None:
            return WireLost(f"`{self._server}` has forgotten our session", was_sent=False)
        if status in (401, 403):
            return UpstreamUnavailable(
                f"`{self._server}` does not let us in (HTTP {status})", hint="check the headers of this server"
            )
        if 400 <= status < 500 and method in ("server/discover", "initialize"):
            return ServerRefused(-32600, f"HTTP {status}")
        if 300 <= status < 400:
            return UpstreamUnavailable(f"`{self._server}` has moved (HTTP {status})", hint="give its new URL")
        if status == 200:
            return UpstreamUnavailable(f"`{self._server}` answered with something that is not MCP")
        return UpstreamUnavailable(f"`{self._server}` answered with HTTP {status}")

    def _note_session(self, method: str, response: Response) -> None:
        if method == "initialize" and (session := response.headers.get(b"mcp-session-id")):
            self._session = session
            self._has_session.set()

    def _call_off(self, number: int) -> None:
        """Tell an older server too: there, the closed connection alone is no cancellation."""
        if not self._is_modern and self._session is not None:
            told = asyncio.create_task(self._told_off(number))
            _telling.add(told)
            told.add_done_callback(_telling.discard)

    async def _told_off(self, number: int) -> None:
        try:
            await asyncio.wait_for(self.notify("notifications/cancelled", b'"requestId":%d' % number), 2.0)
        except (WireLost, TimeoutError) as error:
            event(_log, logging.DEBUG, "cancellation not sent", server=self._server, reason=str(error))

    def _take(self, data: bytes) -> None:
        message = read_message(data)
        if message is not None and message.method is not None and message.id is None:
            self._on_notice(message.method, bytes(message.params))


_telling: set[asyncio.Task[None]] = set()
"""Tasks that outlive the request that started them; held, so that they are not collected."""


class _Exchange:
    """The events of one POST: notifications as they come, and the answer."""

    def __init__(self, server: str, number: int, on_progress: Notice, on_notice: Notice) -> None:
        self._server = server
        self._number = number
        self._on_progress = on_progress
        self._on_notice = on_notice
        self.answer: Incoming | None = None

    def take(self, data: bytes) -> None:
        """Take one event."""
        message = read_message(data)
        if message is None:
            event(
                _log,
                logging.WARNING,
                "server sent nonsense",
                server=self._server,
                text=data[:200].decode(errors="replace"),
            )
        elif message.method is None:
            if message.id == self._number and self.answer is None:
                self.answer = message
        elif message.id is None:
            listener = self._on_progress if message.method == "notifications/progress" else self._on_notice
            listener(message.method, bytes(message.params))


def _result_of(message: Incoming) -> bytes:
    if error := bytes(message.error):
        raise refusal_of(error)
    return bytes(message.result) or b"{}"


def header_value(name: str) -> bytes:
    """Write a name into a header, wrapped where it is not plain ASCII."""
    if name.isascii() and name.isprintable() and not name.startswith("=?base64?"):
        return name.encode()
    return b"=?base64?%b?=" % base64.b64encode(name.encode())
