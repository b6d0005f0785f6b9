"""The streamable HTTP transport of MCP, in both eras: one POST for each request, whose response carries the answer.

A response is plain JSON, or an event stream that also carries notifications and requests of the server; these belong to the
request of the stream. In the handshake era there is a session id, a GET stream for messages outside requests (which are
attributed to a call as in `peer`), and a stream that was cut can be resumed by its last event id. In the stateless era a
cancellation is a closed connection; in the handshake era it is a notification too.
"""

import asyncio
import contextlib
import itertools
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import anyio

from toolpost.base.events import event
from toolpost.base.ids import CallerId, JsonObject
from toolpost.contracts.errors import CredentialRequired, LoginRequired, ToolpostError, UpstreamUnavailable
from toolpost.credentials.server_tokens import ServerToken
from toolpost.fairness import FairQueue
from toolpost.net.client import HeaderLines, HttpClient, HttpFailed, Response, StartedRequest, write_headers
from toolpost.protocol.extensions import is_extension_notification
from toolpost.protocol.mirrored import Headers, header_value
from toolpost.upstreams.http.exchange import Exchange, find_plain_result, is_session_expired, parse_result, result_of
from toolpost.upstreams.lists import ITEMS_LIMIT
from toolpost.upstreams.mask import Mask
from toolpost.upstreams.message import IncomingMessage, RequestWriter, cancellation_reason
from toolpost.upstreams.notifications import (
    ELICITATION_COMPLETE,
    LOG_MESSAGE,
    NO_CLIENTS,
    Attribution,
    ExtensionBudget,
    NotificationListener,
    send_log_to_clients,
    send_to_clients,
)
from toolpost.upstreams.server_requests import ROOTS_CHANGED, ClientChannel, ServerRequests, has_client
from toolpost.upstreams.spec import ServerLimits, ServerSpec
from toolpost.upstreams.transport import ConnectionLost, ServerRefused, UpstreamRequest, encode, write_params

_log = logging.getLogger("toolpost.upstreams")

CONNECTIONS: Final = 128
"""Connections for calls, at most: further calls wait, and callers take turns."""

OWN_CONNECTIONS: Final = 8
"""Connections for requests of the gateway itself, and for the GET stream."""

CLOSE_LIMIT_S: Final = 1.0
RESUME_S: Final = 1.0
ATTEMPTS: Final = 3
"""How often a request is sent again whose token may have expired on its way."""

_REFUSALS: Final = (401, 403)
_SESSION_EXPIRED: Final = "it has forgotten our session"


@asynccontextmanager
async def open_http_server(
    spec: ServerSpec,
    limits: ServerLimits,
    *,
    on_notification: NotificationListener,
    on_gone: Callable[[str], None],
    on_reconnected: Callable[[], None] = lambda: None,
    server_token: ServerToken | None = None,
) -> AsyncIterator["HttpTransport"]:
    """Open a client for the server; nothing is sent before the first request. Leaving closes the session.

    `on_gone` is called when the session has expired, `on_reconnected` when the stream for messages outside requests was lost.
    """
    assert spec.url is not None
    connections = CONNECTIONS + OWN_CONNECTIONS
    async with HttpClient(spec.url, headers=spec.headers, max_connections=connections, network=spec.network) as client:
        what = f"calls waiting for a connection to `{spec.name}`"
        # The limit on calls in flight already limits how many wait here.
        queue = FairQueue(what, limits.callers, at_once=CONNECTIONS, waiting=sys.maxsize)
        transport = HttpTransport(
            spec.name,
            client,
            on_notification=on_notification,
            queue=queue,
            server_token=server_token,
            mask=Mask(spec.secrets),
        )
        listening = asyncio.create_task(transport.listen(on_gone, on_reconnected))
        try:
            yield transport
        finally:
            listening.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([listening])
                await transport.close()


class _DetachedOwner(NamedTuple):
    """The owner of a server request that came on the GET stream: a call by its number, or 0 for none."""

    call: int


class _PostedRequest:
    """A request that `try_send` sent."""

    __slots__ = (
        *("again", "answer", "exchange", "observed"),
        *("on_answer", "request", "started", "used"),
    )

    def __init__(
        self,
        request: UpstreamRequest,
        started: StartedRequest,
        exchange: Exchange,
        again: Callable[[], Coroutine[Any, Any, Response]],
        used: str | None,
    ) -> None:
        self.request = request
        self.again = again
        self.used = used
        """The `Authorization` header that it was sent with."""
        self.started = started
        self.answer = started.answer
        self.exchange = exchange
        self.on_answer: Callable[[bytes], bool] | None = None
        self.observed: Any


class HttpTransport:
    """A `Transport` over streamable HTTP."""

    writer_type = RequestWriter
    """As in `Peer`."""

    def __init__(
        self,
        server: str,
        client: HttpClient,
        *,
        on_notification: NotificationListener,
        queue: FairQueue | None = None,
        server_token: ServerToken | None = None,
        mask: Mask | None = None,
    ) -> None:
        self._server = server
        self._mask = mask or Mask()
        self._client = client
        self._server_token = server_token
        self._used: str | None = None
        """The `Authorization` header of requests now."""
        self._on_notification = on_notification
        self._ids = itertools.count(1)
        self._writer = RequestWriter({})
        self._headers: Headers = ()
        self._lines: dict[str, HeaderLines] = {}
        """The encoded headers of `tools/call`, by the tool's name."""
        self._session: bytes | None = None
        self._is_stateless = False
        self._has_session = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()
        self._server_requests = ServerRequests(server, self._send_in_background)
        self._calls: dict[int, ClientChannel | None] = {}
        self._queue = queue
        self._callers: dict[int, CallerId] = {}
        """The callers of requests in flight, by the request's number; the gateway's own requests have none."""
        self._attribution = Attribution()
        self._budget = ExtensionBudget()

    def use(self, *, request_meta: JsonObject, headers: Mapping[str, str]) -> None:
        self._writer = self.writer_type(request_meta)
        self._is_stateless = bool(request_meta)
        own = tuple((name.encode(), value.encode()) for name, value in headers.items())
        session = ((b"mcp-session-id", self._session),) if self._session else ()
        self._headers = (*own, *session)
        self._lines.clear()

    async def request(self, request: UpstreamRequest, /) -> bytes:
        if self._server_token is not None:
            await self._authorize(self._server_token)
        if request.caller is not None and self._queue is not None:
            await self._queue.enter(request.caller.id)
        exchange = self._begin_exchange(request)
        number = exchange.number
        try:
            body = self._writer.write(number, request)
            lines = self._lines_for(request)
        except BaseException:
            self._end(number, request)
            raise
        if has_client(request.method):
            self._calls[number] = request.client_channel
        post = partial(self._client.post, body, lines, on_event=exchange.take)
        return await self._result(request, exchange, post(), post, self._used)

    def try_send(self, request: UpstreamRequest, /) -> _PostedRequest | None:
        if self._server_token is not None and (
            self._server_token.header != self._used or time.time() >= self._server_token.fresh_until
        ):
            return None
        caller = request.caller_id
        assert caller is not None
        if self._queue is not None and not self._queue.try_enter(caller):
            return None
        exchange = self._begin_exchange(request)
        started = None
        try:
            body = self._writer.write(exchange.number, request)
            lines = self._lines_for(request)
            started = self._client.start(body, lines, exchange.take)
        finally:
            if started is None:
                self._callers.pop(exchange.number)
                if self._queue is not None:
                    self._queue.leave(caller)
        if started is None:
            return None
        self._calls[exchange.number] = request.client_channel
        again = partial(self._client.post, body, lines, on_event=exchange.take)
        posted = _PostedRequest(request, started, exchange, again, self._used)
        started.connection.on_answer = partial(self._on_result, posted)
        return posted

    async def wait_for(self, posted: _PostedRequest, /) -> bytes:
        responding = self._client.finish(posted.started)
        return await self._result(posted.request, posted.exchange, responding, posted.again, posted.used)

    def _on_result(self, posted: _PostedRequest, response: Response) -> bool:
        if posted.on_answer is None or (result := find_plain_result(response, posted.exchange)) is None:
            return False
        if not posted.on_answer(result):
            return False
        self._end(posted.exchange.number, posted.request)
        self._client.release(posted.started)
        return True

    def _begin_exchange(self, request: UpstreamRequest) -> Exchange:
        number, client_channel, caller = next(self._ids), request.client_channel, request.caller_id
        if caller is not None:
            self._callers[number] = caller
        # Messages on the response to a request are about that request.
        take_request = lambda message: self._server_requests.take(message, (client_channel,), owner=number)  # noqa: E731
        take_notification = self._take_notification
        if caller is not None or client_channel is not None:
            take_notification = partial(self._take_notification, client_channel=client_channel, caller=caller)
        return Exchange(
            number,
            on_progress=request.on_progress,
            on_notification=take_notification,
            on_request=take_request,
            mask=self._mask,
        )

    def _end(self, number: int, request: UpstreamRequest) -> None:
        self._calls.pop(number, None)
        if (caller := request.caller_id) is not None:
            self._callers.pop(number, None)
            self._attribution.note_end(caller)
            if self._queue is not None:
                self._queue.leave(caller)
        if self._server_requests:
            self._server_requests.end(number)
            self._server_requests.end(_DetachedOwner(number), successor=self._find_successor(request.client_channel))

    async def _result(
        self,
        request: UpstreamRequest,
        exchange: Exchange,
        responding: Coroutine[Any, Any, Response],
        again: Callable[[], Coroutine[Any, Any, Response]],
        used: str | None,
    ) -> bytes:
        try:
            response = await self._wait_for_answer(responding, exchange)
            if response.status in _REFUSALS and self._server_token is not None and exchange.answer is None:
                response = await self._repeat_authorized(self._server_token, response, exchange, again, used)
        except asyncio.CancelledError as cancelled:
            if not self._is_stateless and self._session is not None:
                # In the handshake era a closed connection is no cancellation.
                fields = b'"requestId":%d,"reason":%b' % (exchange.number, encode(cancellation_reason(cancelled)))
                self._send_in_background(_write_notification("notifications/cancelled", fields))
            if (caller := request.caller_id) is not None:
                self._attribution.note_abandoned(caller)
            raise
        finally:
            self._end(exchange.number, request)
        if request.method == "initialize" and (session := response.headers.get(b"mcp-session-id")):
            self._session = session
            self._has_session.set()
        try:
            if exchange.answer is not None:
                return result_of(exchange.answer)
            if self._session is not None and is_session_expired(response):
                # Not sent, as far as it matters: a server that does not know the session has not run the call.
                raise ConnectionLost(_SESSION_EXPIRED, was_sent=False)
            return parse_result(response, method=request.method, number=exchange.number, mask=self._mask)
        except ServerRefused as refusal:
            self._server_requests.note_error(refusal, request.client_channel)
            raise

    async def _authorize(self, server_token: ServerToken) -> None:
        """Have the current token sent with all further requests; it is renewed if need be."""
        if time.time() >= server_token.fresh_until:
            await server_token.prepare()
        if server_token.header != self._used:
            self._client.set_header("authorization", server_token.header)
            self._used = server_token.header
            self._mask.use_token(server_token.header)

    async def _repeat_authorized(
        self,
        server_token: ServerToken,
        response: Response,
        exchange: Exchange,
        again: Callable[[], Coroutine[Any, Any, Response]],
        used: str | None,
    ) -> Response:
        """Send a refused request once more, with another token: a server that refuses access has not run it.

        Raises `LoginRequired` if there is no other token, or it is refused, too, before its time.
        """
        for attempt in itertools.count(1):
            challenge = response.headers.get(b"www-authenticate", b"").decode("latin-1")
            if not await server_token.handle_refusal(response.status, challenge, used=used):
                return response
            await self._authorize(server_token)
            used = self._used
            response = await self._wait_for_answer(again(), exchange)
            if response.status not in _REFUSALS or exchange.answer is not None:
                return response
            # Tokens that live for seconds expire on their way to a server that is busy; the next one need not.
            if response.status == 403 or attempt == ATTEMPTS or not server_token.may_have_expired(used):
                break
        challenge = response.headers.get(b"www-authenticate", b"").decode("latin-1")
        if response.status == 401 or await server_token.handle_refusal(403, challenge, used=used):
            raise server_token.make_repeated_error()
        return response

    async def notify(self, method: str, fields: bytes = b"") -> None:
        await _translate_failure(
            self._client.post(_write_notification(method, fields), self._headers_for(method, None))
        )

    async def notify_roots_changed(self, client_channel: ClientChannel) -> None:
        if self._server_requests.allow_roots_requests(client_channel):
            self._send_in_background(_write_notification(ROOTS_CHANGED, b""))

    async def listen(self, on_gone: Callable[[str], None], on_reconnected: Callable[[], None] = lambda: None) -> None:
        """Hold the GET stream of a server of the handshake era, if it has one; `on_gone` is called when its session expired."""
        await self._has_session.wait()
        exchange = Exchange(
            0,
            on_progress=None,
            on_notification=self._take_notification,
            on_request=self._take_request,
            mask=self._mask,
        )
        while True:
            try:
                if self._server_token is not None:
                    await self._authorize(self._server_token)
                response = await self._client.request("GET", headers=self._headers, on_event=exchange.take)
            except (CredentialRequired, LoginRequired):
                return  # The next call reports it.
            except (HttpFailed, UpstreamUnavailable) as failure:
                # The latter, if the authorization server cannot be reached: it may be back in a moment.
                event(_log, logging.DEBUG, "event stream lost", server=self._server, reason=str(failure))
            else:
                if response.status == 404:
                    on_gone(_SESSION_EXPIRED)
                if response.status != 200:
                    return
            await asyncio.sleep(RESUME_S)
            on_reconnected()

    async def close(self) -> None:
        """Send what is still queued, then delete the session; gives up after `CLOSE_LIMIT_S`."""
        with contextlib.suppress(HttpFailed, TimeoutError):
            async with asyncio.timeout(CLOSE_LIMIT_S):
                if self._background:
                    await asyncio.wait(self._background)
                if self._session is not None:
                    await self._client.request("DELETE", headers=self._headers)
        for task in self._background:
            task.cancel()

    def _headers_for(self, method: str, name: str | None, mirrored: Headers = ()) -> Headers:
        if not self._is_stateless:
            return self._headers
        routing = ((b"mcp-method", method.encode()),)
        if not name:
            return (*self._headers, *routing)
        return (*self._headers, *routing, (b"mcp-name", header_value(name)), *mirrored)

    def _lines_for(self, request: UpstreamRequest) -> HeaderLines:
        method, name = request.method, request.name
        if method != "tools/call" or name is None or request.mirrored:
            return write_headers(self._headers_for(method, name, request.mirrored))
        if (lines := self._lines.get(name)) is None:
            if len(self._lines) >= ITEMS_LIMIT:
                self._lines.clear()  # A server may rename its tools again and again.
            lines = self._lines[name] = write_headers(self._headers_for(method, name))
        return lines

    async def _wait_for_answer(self, responding: Coroutine[Any, Any, Response], exchange: Exchange) -> Response:
        """Await the response; a stream that the server cut before the answer is resumed."""
        response = await _translate_failure(responding)
        # Only the handshake era can resume a stream, and only one whose events have ids.
        while exchange.answer is None and response.last_event_id and response.status == 200 and not self._is_stateless:
            response = await self._resume(response, exchange)
        return response

    async def _resume(self, response: Response, exchange: Exchange) -> Response:
        """Request the rest of a stream by its last event id, after the pause that the server asked for.

        The server has accepted the request and may have run it. So whatever fails here is `UpstreamUnavailable`: a login that is
        required, or a session that has expired, would have the request sent a second time.
        """
        await asyncio.sleep(RESUME_S if response.retry_ms is None else min(response.retry_ms, 10_000) / 1000)
        headers = (*self._headers, (b"last-event-id", response.last_event_id))
        get = partial(self._client.request, "GET", headers=headers, on_event=exchange.take)
        try:
            response = await self._get_authorized(self._server_token, get) if self._server_token else await get()
        except HttpFailed as failure:
            raise UpstreamUnavailable(failure.reason, hint=failure.hint) from failure
        except ToolpostError as error:
            raise UpstreamUnavailable(f"the rest of its answer was lost: {error.message}", hint=error.hint) from error
        if response.status != 200 and exchange.answer is None:
            raise UpstreamUnavailable(f"it refused to send the rest of its answer (HTTP {response.status})")
        return response

    async def _get_authorized(
        self, server_token: ServerToken, get: Callable[[], Coroutine[Any, Any, Response]]
    ) -> Response:
        """Send a GET, and once more with another token if it is refused."""
        await self._authorize(server_token)
        used = self._used
        response = await get()
        if response.status in _REFUSALS:
            challenge = response.headers.get(b"www-authenticate", b"").decode("latin-1")
            if await server_token.handle_refusal(response.status, challenge, used=used):
                await self._authorize(server_token)
                response = await get()
        return response

    def _take_request(self, message: IncomingMessage) -> None:
        """Pass on a request that came on the GET stream, which does not say which call it is about."""
        number = next(reversed(self._calls), 0)
        candidates = [*self._calls.values()]
        if number and self._attribution.may_serve_others(self._callers.get(number)):
            # It may be about a call that another caller has abandoned. A second candidate makes it ambiguous, and so refused.
            candidates.append(None)
        self._server_requests.take(message, candidates, owner=_DetachedOwner(number))

    def _find_successor(self, client_channel: ClientChannel | None) -> _DetachedOwner | None:
        """Find another call of the same client: an open request of the GET stream may have been about that one."""
        if client_channel is None:
            return None
        others = self._calls.items()
        return next(
            (_DetachedOwner(n) for n, other in others if other is not None and other.client == client_channel.client),
            None,
        )

    def _take_notification(
        self, method: str, params: bytes, client_channel: ClientChannel | None = None, caller: CallerId | None = None
    ) -> None:
        """Handle a notification. Those on the response to a request come with its client and caller."""
        if method == "notifications/cancelled":
            self._server_requests.cancel_request(params)
            return
        if method == ELICITATION_COMPLETE:
            self._on_notification(method, params, self._server_requests.pop_elicitation_clients(params), None)
        elif method != LOG_MESSAGE:
            if is_extension_notification(method):
                self._take_extension(method, params, client_channel, caller)
            else:
                self._on_notification(method, params, NO_CLIENTS, None)
        elif client_channel is not None:
            send_log_to_clients(params, (client_channel,))
        elif caller is not None:
            self._on_notification(LOG_MESSAGE, params, NO_CLIENTS, caller)
        else:
            # It came on the GET stream, which does not say which call it is about.
            caller = self._attribution.find_caller(self._callers.values())
            clients = send_log_to_clients(params, self._calls.values()) if caller is not None else NO_CLIENTS
            self._on_notification(LOG_MESSAGE, params, clients, caller)

    def _take_extension(
        self, method: str, params: bytes, client_channel: ClientChannel | None, caller: CallerId | None
    ) -> None:
        """Forward a notification of an extension to the client of the call that it is about, as a log message."""
        if not self._budget.take():
            if self._budget.dropped == 1:
                event(_log, logging.WARNING, "notifications of extensions dropped", server=self._server)
            return
        channels = [client_channel]
        if caller is None and client_channel is None:
            # It came on the GET stream, which does not say which call it is about.
            caller = self._attribution.find_caller(self._callers.values())
            channels = list(self._calls.values()) if caller is not None else []
        self._on_notification(method, params, send_to_clients(method, params, channels), caller)

    def _send_in_background(self, body: bytes) -> None:
        """Send a message without waiting for its response; failures are logged."""

        async def run() -> None:
            try:
                async with asyncio.timeout(2 * CLOSE_LIMIT_S):
                    await _translate_failure(self._client.post(body, self._headers))
            except (UpstreamUnavailable, TimeoutError) as error:
                event(_log, logging.DEBUG, "message not sent", server=self._server, reason=str(error))

        task = asyncio.create_task(run())
        self._background.add(task)
        task.add_done_callback(self._background.discard)


async def _translate_failure(responding: Coroutine[Any, Any, Response]) -> Response:
    """Await a response; `HttpFailed` becomes `ConnectionLost` if the request was not sent, else `UpstreamUnavailable`."""
    try:
        return await responding
    except HttpFailed as failure:
        if failure.sent:
            # Not `ConnectionLost`, which retires the instance: other requests to the same server may succeed.
            raise UpstreamUnavailable(failure.reason, hint=failure.hint) from failure
        raise ConnectionLost(failure.reason, was_sent=False, hint=failure.hint) from failure


def _write_notification(method: str, fields: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (encode(method), write_params(fields, {}))
