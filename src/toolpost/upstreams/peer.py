"""JSON-RPC with one server over a two-way channel that carries whole messages, such as a pipe.

Requests get ids of this process, and answers are matched to them; callers never see each other's ids. The channel is shared by
all calls, which raises two questions that HTTP, with one response for each request, does not have:

- Which answer is late? A cancelled request stays in `_abandoned` until its answer comes, so that it is dropped silently; any
  other answer without a request is a protocol error of the server, counted and logged.
- Which call is a server's own request or log message about? The protocol does not say. It is attributed only where there is no
  doubt: all calls in flight are of one client, and no other caller has ended or abandoned a call a moment ago (`Attribution`).
  Otherwise a request is refused, and a log message goes to no caller: one caller must not see the data of another.

Example: ann's call 7 and bob's call 8 are in flight, and the server sends `elicitation/create`. It gets an error, since two
clients are candidates. After 8 has ended and some time has passed, the same request goes to ann's client.

Where the channel does say it, as `in_process` does, its owner passes it on (`about`), and there is nothing to guess.

Reading and writing the channel is left to `stdio`, `sse` and `in_process`.
"""

import asyncio
import itertools
import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

import msgspec

from toolpost.base.events import event
from toolpost.base.ids import CallerId, JsonObject
from toolpost.contracts.errors import ToolpostError, UpstreamUnavailable
from toolpost.protocol.extensions import is_extension_notification
from toolpost.upstreams.mask import Mask
from toolpost.upstreams.message import (
    IncomingMessage,
    RequestWriter,
    cancellation_reason,
    parse_error,
    parse_message,
    parse_progress_token,
)
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
from toolpost.upstreams.transport import ConnectionLost, ServerRefused, UpstreamRequest, encode, write_params

_log = logging.getLogger("toolpost.upstreams")

MESSAGE_LIMIT: Final = 16 * 1024 * 1024
"""Copying and hashing a result takes the event loop 3 ms for each MiB: this much stays below 50 ms."""

_NOT_CANCELLABLE = frozenset({"initialize", "server/discover"})
"""Never cancelled: MCP forbids it for `initialize`, and `server/discover` may come before a server knows cancellation."""

_ABANDONED_LIMIT = 1_000

_REPORTED_PROTOCOL_ERRORS = 10
"""How many messages that make no sense are logged; the rest are only counted."""

_head_id = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*"?(\d+)').match


class PendingMessage:
    """A request in flight on the channel."""

    __slots__ = (
        "answer",
        "number",
        "observed",
        "on_answer",
        "raw",
        "request",
    )

    def __init__(self, number: int, request: UpstreamRequest, raw: bytes, answer: "asyncio.Future[bytes]") -> None:
        self.number = number
        self.request = request
        self.raw = raw
        self.answer = answer
        self.on_answer: Callable[[bytes], bool] | None = None
        """See `PendingRequest`."""
        self.observed: Any

    @property
    def caller(self) -> CallerId | None:
        return self.request.caller_id

    @property
    def client_channel(self) -> ClientChannel | None:
        return self.request.client_channel

    @property
    def is_call(self) -> bool:
        """Whether the server may send requests to the client while it handles this one."""
        return has_client(self.request.method)


class Peer:
    """A `Transport` over a channel. Its owner passes incoming messages to `take`, and calls `lose` when the channel ends."""

    writer_type = RequestWriter
    """Writes requests; an observer may put a subclass here before `use`."""

    def __init__(self, server: str, send: Callable[[bytes], None], *, on_notification: NotificationListener) -> None:
        self._server = server
        self._send = send
        self._on_notification = on_notification
        self._loop = asyncio.get_running_loop()
        self._ids = itertools.count(1)
        self._pending: dict[int, PendingMessage] = {}
        self._abandoned: dict[int, None] = {}
        """Cancelled requests whose answers may still come, the oldest first."""
        self._writer = RequestWriter({})
        self._server_requests = ServerRequests(server, send)
        self._attribution = Attribution()
        self._budget = ExtensionBudget()
        self._lost: str | None = None
        self.mask = Mask()
        """The server's credentials, which are removed from its messages."""
        self.protocol_errors = 0
        """How many messages of the server made no sense."""

    def use(self, *, request_meta: JsonObject, headers: Mapping[str, str]) -> None:  # noqa: ARG002 (a channel has no headers)
        self._writer = self.writer_type(request_meta)

    def request(self, request: UpstreamRequest, /) -> Coroutine[Any, Any, bytes]:
        return self.wait_for(self.send(request))

    def send(self, request: UpstreamRequest) -> PendingMessage:
        """Send a request; await `wait_for` unless `on_answer` accepts the result. Raises `ConnectionLost`."""
        if self._lost is not None:
            raise ConnectionLost(self._lost, was_sent=False)
        number = next(self._ids)
        raw = self._writer.write(number, request)
        # Sent before it is registered: if sending raises, nothing has to be undone.
        self._send(raw)
        answer = self._loop.create_future()
        pending = PendingMessage(number, request, raw, answer)
        self._pending[number] = pending
        return pending

    def try_send(self, request: UpstreamRequest, /) -> PendingMessage | None:
        try:
            return self.send(request)
        except ConnectionLost:
            return None

    async def wait_for(self, pending: PendingMessage, /) -> bytes:
        try:
            return await pending.answer
        except ServerRefused as refusal:
            self._server_requests.note_error(refusal, pending.client_channel)
            raise
        except asyncio.CancelledError as cancelled:
            self._cancel(pending, cancellation_reason(cancelled))
            raise
        finally:
            self._forget(pending)

    async def notify(self, method: str, fields: bytes = b"") -> None:
        self._notify(method, fields)

    async def notify_roots_changed(self, client_channel: ClientChannel) -> None:
        if self._server_requests.allow_roots_requests(client_channel):
            self._notify(ROOTS_CHANGED, b"")

    def take(self, raw: bytes, *, about: int | str | None = None) -> None:
        """Handle a message from the server; one that makes no sense is counted and dropped.

        `about` is the id of the request that it belongs to, where the channel says so.
        """
        raw = self.mask.apply(raw)
        message = parse_message(raw)
        if message is None:
            self._note_oddity("something that is not JSON-RPC", raw)
        elif message.method is None:
            self._take_answer(message, raw)
        elif message.id is None:
            self._take_notification(message.method, bytes(message.params), about)
        else:
            self._take_request(message, about)

    def take_result(self, number: int | str, result: bytes) -> None:
        """Handle the result of a request, given its JSON; for a channel that does not frame messages as bytes."""
        self._take_answer(IncomingMessage(id=number, result=msgspec.Raw(result)), result)

    def take_too_long(self, head: bytes, limit: int) -> None:
        """Fail the request that a message over the limit answers, given its first bytes; none, if it cannot be identified."""
        found = _head_id(head)
        pending = self._pending.get(int(found[1])) if found else None
        if pending is None and len(self._pending) == 1:
            # The id may come after the result, beyond the bytes that were kept; with one request in flight it is not needed.
            pending = next(iter(self._pending.values()))
        self._note_oddity(f"a message of over {limit} bytes", head)
        if pending is not None and not pending.answer.done():
            hint = "ask for less in one call: a page, a filter, a part of the file"
            pending.answer.set_exception(
                UpstreamUnavailable(f"its answer has more than {limit} bytes, the limit", hint=hint)
            )

    def refuse(self, number: int | str | None, error: ToolpostError) -> None:
        """Fail one request, which the server did not accept, with an error such as a required login."""
        pending = self._pending.get(_parse_id(number))
        if pending is not None and not pending.answer.done():
            pending.answer.set_exception(error)

    def lose(self, reason: str, *, unsent: Iterable[bytes] = ()) -> None:
        """Fail everything in flight with `ConnectionLost`; requests among `unsent` are marked as safe to repeat."""
        if self._lost is None:
            self._lost = reason
        # By identity: two requests may have equal bytes only if they had the same id.
        spared = {id(raw) for raw in unsent}
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(ConnectionLost(reason, was_sent=id(pending.raw) not in spared))

    def _take_answer(self, message: IncomingMessage, raw: bytes) -> None:
        number = message.id if isinstance(message.id, int) else _parse_id(message.id)
        pending = self._pending.get(number)
        if pending is None and number in self._abandoned:
            # The server sent it before it saw the cancellation.
            del self._abandoned[number]
        elif pending is None or pending.answer.done():
            # A second answer, or one without a request.
            self._note_oddity("an answer without a request", raw)
        elif error := message.refusal:
            pending.answer.set_exception(parse_error(error))
        else:
            result = bytes(message.result) or b"{}"
            if pending.on_answer is not None and pending.on_answer(result):
                self._forget(pending)
            else:
                pending.answer.set_result(result)

    def _forget(self, pending: PendingMessage) -> None:
        del self._pending[pending.number]
        if pending.caller is not None:
            self._attribution.note_end(pending.caller)
        if self._server_requests:
            self._server_requests.end(pending, successor=self._find_successor(pending))

    def _take_request(self, message: IncomingMessage, about: int | str | None) -> None:
        """Pass a request of the server to the client of the call that it is about; of the latest, if that is not known."""
        if about is not None:
            call = self._pending.get(_parse_id(about))
            is_open = call is not None and call.is_call and not call.answer.done()
            self._server_requests.take(message, [call.client_channel] if call and is_open else [], owner=call)
            return
        calls = [pending for pending in self._pending.values() if pending.is_call and not pending.answer.done()]
        candidates = [pending.client_channel for pending in calls]
        if calls and self._attribution.may_serve_others(calls[-1].caller):
            # It may be about a call that another caller has abandoned. A second candidate makes it ambiguous, and so refused.
            candidates.append(None)
        self._server_requests.take(message, candidates, owner=calls[-1] if calls else None)

    def _find_successor(self, ended: PendingMessage) -> PendingMessage | None:
        """Find another call of the same client: a server request that is open may have been about that one."""
        if ended.client_channel is None:
            return None
        client = ended.client_channel.client
        others = (
            p for p in self._pending.values() if p.client_channel is not None and p.client_channel.client == client
        )
        return next(others, None)

    def _take_notification(self, method: str, params: bytes, about: int | str | None) -> None:
        if method == "notifications/cancelled":
            self._server_requests.cancel_request(params)
            return
        if method == ELICITATION_COMPLETE:
            self._on_notification(method, params, self._server_requests.pop_elicitation_clients(params), None)
            return
        if method == LOG_MESSAGE:
            self._take_log(params, about)
            return
        if method != "notifications/progress":
            if is_extension_notification(method):
                self._take_extension(method, params, about)
            else:
                self._on_notification(method, params, NO_CLIENTS, None)
            return
        pending = self._pending.get(_parse_id(parse_progress_token(params)))
        if pending is not None and pending.request.on_progress is not None and not pending.answer.done():
            pending.request.on_progress(method, params)

    def _take_extension(self, method: str, params: bytes, about: int | str | None) -> None:
        """Forward a notification of an extension to the client of the call that it is about, as a log message."""
        if not self._budget.take():
            if self._budget.dropped == 1:
                self._note_oddity("more notifications of extensions than are passed on", params)
            return
        if about is not None:
            call = self._pending.get(_parse_id(about))
            concerned, caller = [call] if call is not None else [], call.caller if call is not None else None
        else:
            concerned = list(self._pending.values())
            caller = self._attribution.find_caller(pending.caller for pending in concerned)
        told = send_to_clients(method, params, (one.client_channel for one in concerned)) if caller else NO_CLIENTS
        self._on_notification(method, params, told, caller)

    def _take_log(self, params: bytes, about: int | str | None) -> None:
        if about is not None:
            call = self._pending.get(_parse_id(about))
            channels = [call.client_channel] if call is not None else []
            clients = send_log_to_clients(params, channels)
            self._on_notification(LOG_MESSAGE, params, clients, call.caller if call is not None else None)
            return
        caller = self._attribution.find_caller(pending.caller for pending in self._pending.values())
        clients = NO_CLIENTS
        if caller is not None:
            clients = send_log_to_clients(params, (pending.client_channel for pending in self._pending.values()))
        self._on_notification(LOG_MESSAGE, params, clients, caller)

    def _cancel(self, pending: PendingMessage, reason: str) -> None:
        self._abandoned[pending.number] = None
        if pending.caller is not None:
            self._attribution.note_abandoned(pending.caller)
        if len(self._abandoned) > _ABANDONED_LIMIT:
            del self._abandoned[next(iter(self._abandoned))]
        if not pending.answer.cancelled():
            # The answer came in the same turn of the loop. Retrieved, or asyncio would log an exception that was never read.
            pending.answer.exception()
        if pending.request.method not in _NOT_CANCELLABLE and self._lost is None:
            self._notify("notifications/cancelled", b'"requestId":%d,"reason":%b' % (pending.number, encode(reason)))

    def _notify(self, method: str, fields: bytes) -> None:
        self._send(b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (encode(method), write_params(fields, {})))

    def _note_oddity(self, what: str, raw: bytes) -> None:
        self.protocol_errors += 1
        if self.protocol_errors <= _REPORTED_PROTOCOL_ERRORS:
            text = raw[:200].decode(errors="replace")
            event(_log, logging.WARNING, f"server sent {what}", server=self._server, text=text)


def _parse_id(raw: int | str | None) -> int:
    """Parse the id of an answer, which some servers send back as text; -1, which no request has, if it is no number."""
    if isinstance(raw, int):
        return raw
    return int(raw) if isinstance(raw, str) and raw.isdecimal() and len(raw) < 20 else -1
