"""A server over streamable HTTP: one client with kept connections, one POST a request, events as they come."""

import asyncio
import contextlib
import itertools
import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import anyio

from toolpost.base.events import event
from toolpost.base.ids import CallerId, JsonObject
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.protocol.mirrored import Headers, header_value
from toolpost.shares import FairQueue
from toolpost.upstreams.envelope import Envelope
from toolpost.upstreams.http.client import HeaderLines, HttpClient, HttpFailed, Response, Started, header_lines
from toolpost.upstreams.http.exchange import Exchange, has_forgotten_us, plain_result_in, result_in, result_of
from toolpost.upstreams.message import Incoming
from toolpost.upstreams.notifications import ELICITED, LOG, NOBODY, Attribution, Hear, tell_callers
from toolpost.upstreams.server_requests import CALLS, ROOTS_CHANGED, Questions, Respondent
from toolpost.upstreams.spec import ServerLimits, ServerSpec
from toolpost.upstreams.wire import Notice, ServerRefused, WireLost, encode, parameters

_log = logging.getLogger("toolpost.upstreams")

CONNECTIONS: Final = 128
"""To one server at once for calls: other calls wait, and callers take turns."""

OWN_CONNECTIONS: Final = 8
"""For what is asked in nobody's name, and for the stream on which a server speaks by itself."""

FAREWELL_S: Final = 1.0
RESUME_S: Final = 1.0
_FORGOTTEN: Final = "it has forgotten our session"


@asynccontextmanager
async def open_http_server(
    spec: ServerSpec, limits: ServerLimits, *, on_notice: Hear, on_gone: Callable[[str], None]
) -> AsyncIterator["HttpWire"]:
    """Keep a client for the server; nothing is sent until somebody asks."""
    assert spec.url is not None
    async with HttpClient(spec.url, headers=spec.headers, max_connections=CONNECTIONS + OWN_CONNECTIONS) as client:
        what = f"calls waiting for a connection to `{spec.name}`"
        # How many may wait is limited by the calls in flight.
        queue = FairQueue(what, limits.callers, at_once=CONNECTIONS, waiting=sys.maxsize)
        wire = HttpWire(spec.name, client, on_notice=on_notice, queue=queue)
        listening = asyncio.create_task(wire.listen(on_gone))
        try:
            yield wire
        finally:
            listening.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([listening])
                await wire.leave()


class _Apart(NamedTuple):
    """What a question ends with that came on no call's own stream."""

    call: int


class _Posted:
    """A request that goes out on a kept connection."""

    __slots__ = ("answer", "caller", "exchange", "method", "respondent", "started", "take_ahead")

    def __init__(
        self, method: str, started: Started, exchange: Exchange, respondent: Respondent | None, caller: CallerId
    ) -> None:
        self.method = method
        self.started = started
        self.answer = started.answer
        self.exchange = exchange
        self.respondent = respondent
        self.caller = caller
        self.take_ahead: Callable[[bytes], bool] | None = None


class HttpWire:
    """Requests to one HTTP server, in either era."""

    def __init__(self, server: str, client: HttpClient, *, on_notice: Hear, queue: FairQueue | None = None) -> None:
        self._server = server
        self._client = client
        self._on_notice = on_notice
        self._ids = itertools.count(1)
        self._envelope = Envelope({})
        self._headers: Headers = ()
        self._lines: dict[str, HeaderLines] = {}
        """Of calls, by the tool's name."""
        self._session: bytes | None = None
        self._is_modern = False
        self._has_session = asyncio.Event()
        self._errands: set[asyncio.Task[None]] = set()
        self._questions = Questions(server, self._run_errand)
        self._calls: dict[int, Respondent | None] = {}
        self._queue = queue
        self._callers: dict[int, CallerId] = {}
        """Whose request it is, of those in flight that are somebody's."""
        self._attribution = Attribution()

    def use(self, *, envelope: JsonObject, headers: Mapping[str, str]) -> None:
        """Carry this in every request."""
        self._envelope = Envelope(envelope)
        self._is_modern = bool(envelope)
        own = tuple((name.encode(), value.encode()) for name, value in headers.items())
        session = ((b"mcp-session-id", self._session),) if self._session else ()
        self._headers = (*own, *session)
        self._lines.clear()

    async def request(
        self,
        method: str,
        fields: bytes = b"",
        *,
        meta: JsonObject | None = None,
        name: str | None = None,
        mirrored: Headers = (),
        on_notice: Notice | None = None,
        respondent: Respondent | None = None,
        caller: CallerId | None = None,
    ) -> bytes:
        """Ask, and return the JSON of the result."""
        if caller is not None and self._queue is not None:
            await self._queue.enter(caller)
        exchange = self._begin_exchange(respondent, caller, on_notice)
        number, wants_progress = exchange.number, on_notice is not None
        try:
            body = self._envelope.request(
                number, method, fields, meta=meta, respondent=respondent, wants_progress=wants_progress
            )
            lines = self._lines_for(method, name, mirrored)
        except BaseException:
            self._end(number, respondent, caller)
            raise
        if method in CALLS:
            self._calls[number] = respondent
        responding = self._client.post(body, lines, on_event=exchange.take)
        return await self._result(method, exchange, respondent, caller, responding)

    def send_ahead(
        self,
        method: str,
        fields: bytes,
        *,
        name: str,
        meta: JsonObject,
        respondent: Respondent | None,
        caller: CallerId,
    ) -> _Posted | None:
        """Ask now, if a connection is at hand."""
        if self._queue is not None and not self._queue.try_enter(caller):
            return None
        exchange = self._begin_exchange(respondent, caller, None)
        body = self._envelope.request(exchange.number, method, fields, meta=meta, respondent=respondent)
        started = self._client.start(body, self._lines_for(method, name, ()), exchange.take)
        if started is None:
            self._callers.pop(exchange.number)
            if self._queue is not None:
                self._queue.leave(caller)
            return None
        self._calls[exchange.number] = respondent
        posted = _Posted(method, started, exchange, respondent, caller)
        started.connection.take_ahead = partial(self._taken_ahead, posted)
        return posted

    async def answer_to(self, posted: _Posted, /) -> bytes:
        """Wait for the answer to what was sent, and return the JSON of the result."""
        responding = self._client.finish(posted.started)
        return await self._result(posted.method, posted.exchange, posted.respondent, posted.caller, responding)

    def _taken_ahead(self, posted: _Posted, response: Response) -> bool:
        if posted.take_ahead is None or (result := plain_result_in(response, posted.exchange)) is None:
            return False
        if not posted.take_ahead(result):
            return False
        self._end(posted.exchange.number, posted.respondent, posted.caller)
        self._client.finished(posted.started)
        return True

    def _begin_exchange(
        self, respondent: Respondent | None, caller: CallerId | None, on_progress: Notice | None
    ) -> Exchange:
        number = next(self._ids)
        if caller is not None:
            self._callers[number] = caller
        # What comes on the response to a request is about that request.
        take_question = lambda question: self._questions.take(question, (respondent,), owner=number)  # noqa: E731
        take_notice = self._take_notice
        if caller is not None or respondent is not None:
            take_notice = partial(self._take_notice, respondent=respondent, caller=caller)
        return Exchange(number, on_progress=on_progress, on_notice=take_notice, on_request=take_question)

    def _end(self, number: int, respondent: Respondent | None, caller: CallerId | None) -> None:
        self._calls.pop(number, None)
        if caller is not None:
            self._callers.pop(number, None)
            self._attribution.note_end(caller)
            if self._queue is not None:
                self._queue.leave(caller)
        if self._questions:
            self._questions.end(number)
            self._questions.end(_Apart(number), heir=self._heir_of(respondent))

    async def _result(
        self,
        method: str,
        exchange: Exchange,
        respondent: Respondent | None,
        caller: CallerId | None,
        responding: Coroutine[Any, Any, Response],
    ) -> bytes:
        try:
            response = await self._wait_for_answer(responding, exchange)
        except asyncio.CancelledError:
            self._call_off(exchange.number)
            if caller is not None:
                self._attribution.note_given_up(caller)
            raise
        finally:
            self._end(exchange.number, respondent, caller)
        if method == "initialize":
            self._note_session(response)
        try:
            if exchange.answer is not None:
                return result_of(exchange.answer)
            if self._session is not None and has_forgotten_us(response):
                raise WireLost(_FORGOTTEN, was_sent=False)
            return result_in(response, method=method, number=exchange.number)
        except ServerRefused as refusal:
            self._questions.note_refusal(refusal, respondent)
            raise

    async def notify(self, method: str, fields: bytes = b"") -> None:
        """Tell the server something."""
        await _wait_or_explain(self._client.post(_notification(method, fields), self._headers_for(method, None)))

    async def roots_changed(self, respondent: Respondent) -> None:
        """Tell the server that a client has other folders."""
        if self._questions.stand_for_roots(respondent):
            self._run_errand(_notification(ROOTS_CHANGED, b""))

    async def listen(self, on_gone: Callable[[str], None]) -> None:
        """Hold the stream on which a server of the handshake era speaks by itself, where it has one."""
        await self._has_session.wait()
        exchange = Exchange(0, on_progress=None, on_notice=self._take_notice, on_request=self._take_question)
        while True:
            try:
                response = await self._client.request("GET", headers=self._headers, on_event=exchange.take)
            except HttpFailed as failure:
                event(_log, logging.DEBUG, "event stream lost", server=self._server, reason=str(failure))
            else:
                if response.status == 404:
                    on_gone(_FORGOTTEN)
                if response.status != 200:
                    return
            await asyncio.sleep(RESUME_S)

    async def leave(self) -> None:
        """Say what is still to be said, then close the session, as a polite client does."""
        with contextlib.suppress(HttpFailed, TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                if self._errands:
                    await asyncio.wait(self._errands)
                if self._session is not None:
                    await self._client.request("DELETE", headers=self._headers)
        for errand in self._errands:
            errand.cancel()

    def _headers_for(self, method: str, name: str | None, mirrored: Headers = ()) -> Headers:
        if not self._is_modern:
            return self._headers
        routing = ((b"mcp-method", method.encode()),)
        if not name:
            return (*self._headers, *routing)
        return (*self._headers, *routing, (b"mcp-name", header_value(name)), *mirrored)

    def _lines_for(self, method: str, name: str | None, mirrored: Headers) -> HeaderLines:
        if method != "tools/call" or name is None or mirrored:
            return header_lines(self._headers_for(method, name, mirrored))
        if (lines := self._lines.get(name)) is None:
            # The names are those that the server lists, so there is an end to them.
            lines = self._lines[name] = header_lines(self._headers_for(method, name))
        return lines

    async def _wait_for_answer(self, responding: Coroutine[Any, Any, Response], exchange: Exchange) -> Response:
        """Wait for the answer, also where the server cuts the stream that it comes on."""
        response = await _wait_or_explain(responding)
        while exchange.answer is None and self._may_resume(response):
            response = await self._resume(response, exchange)
        return response

    def _may_resume(self, response: Response) -> bool:
        return bool(response.last_event_id) and response.status == 200 and not self._is_modern

    async def _resume(self, response: Response, exchange: Exchange) -> Response:
        """Ask for the rest of a stream that its server has cut, as the handshake era has it."""
        await asyncio.sleep(RESUME_S if response.retry_ms is None else min(response.retry_ms, 10_000) / 1000)
        headers = (*self._headers, (b"last-event-id", response.last_event_id))
        try:
            return await self._client.request("GET", headers=headers, on_event=exchange.take)
        except HttpFailed as failure:
            raise UpstreamUnavailable(failure.reason) from failure

    def _note_session(self, response: Response) -> None:
        if session := response.headers.get(b"mcp-session-id"):
            self._session = session
            self._has_session.set()

    def _call_off(self, number: int) -> None:
        """Tell an older server too: there, the closed connection alone is no cancellation."""
        if not self._is_modern and self._session is not None:
            self._run_errand(_notification("notifications/cancelled", b'"requestId":%d' % number))

    def _take_question(self, message: Incoming) -> None:
        """Have a question answered that came by itself, and does not say which call it is about."""
        number = next(reversed(self._calls), 0)
        candidates = [*self._calls.values()]
        if number and self._attribution.works_for_others(self._callers.get(number)):
            # It may be about a call that another caller gave up: then nobody is asked.
            candidates.append(None)
        self._questions.take(message, candidates, owner=_Apart(number))

    def _heir_of(self, respondent: Respondent | None) -> _Apart | None:
        """Find another call of the same client: a question that came apart may well have been about that one."""
        if respondent is None:
            return None
        others = self._calls.items()
        return next((_Apart(n) for n, other in others if other is not None and other.client == respondent.client), None)

    def _take_notice(
        self, method: str, params: bytes, respondent: Respondent | None = None, caller: CallerId | None = None
    ) -> None:
        """Take a notification; what comes on the response to a request is about that request, whose caller is given."""
        if method == "notifications/cancelled":
            self._questions.call_off(params)
            return
        if method == ELICITED:
            self._on_notice(method, params, self._questions.clients_of_page(params), None)
        elif method != LOG:
            self._on_notice(method, params, NOBODY, None)
        elif respondent is not None:
            tell_callers(params, (respondent,))
        elif caller is not None:
            self._on_notice(LOG, params, NOBODY, caller)
        else:
            # It came by itself, and does not say which call it is about.
            caller = self._attribution.find_caller(self._callers.values())
            told = tell_callers(params, self._calls.values()) if caller is not None else NOBODY
            self._on_notice(LOG, params, told, caller)

    def _run_errand(self, body: bytes) -> None:
        """Send something that nobody waits for."""

        async def run() -> None:
            try:
                async with asyncio.timeout(2 * FAREWELL_S):
                    await _wait_or_explain(self._client.post(body, self._headers))
            except (UpstreamUnavailable, TimeoutError) as error:
                event(_log, logging.DEBUG, "message not sent", server=self._server, reason=str(error))

        task = asyncio.create_task(run())
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)


async def _wait_or_explain(responding: Coroutine[Any, Any, Response]) -> Response:
    """Wait for a response, and say in our words why there is none."""
    try:
        return await responding
    except HttpFailed as failure:
        if failure.sent:
            # This request has failed; others on their way to the same server need not.
            raise UpstreamUnavailable(failure.reason) from failure
        raise WireLost(failure.reason, was_sent=False, hint=failure.hint) from failure


def _notification(method: str, fields: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (encode(method), parameters(fields, {}))
