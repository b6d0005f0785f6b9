"""JSON-RPC with one server on a two-way channel: ids of our own, answers matched to them, late ones dropped."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping

import msgspec

from toolpost.contracts.events import event
from toolpost.contracts.ids import Json, JsonObject
from toolpost.upstreams.wire import Notice, ServerRefused, WireLost, encode, parameters

_log = logging.getLogger("toolpost.upstreams")


class Incoming(msgspec.Struct):
    """A message from a server: an answer, a notification, or a request of its own."""

    id: int | str | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


class _Refusal(msgspec.Struct):
    code: int = -32603
    message: str = "the server gave no reason"
    data: Json = None


class _Token(msgspec.Struct):
    progressToken: int | str | None = None  # noqa: N815 (as on the wire)


_incoming = msgspec.json.Decoder(Incoming)
_refusal = msgspec.json.Decoder(_Refusal)
_token = msgspec.json.Decoder(_Token)


class _Pending:
    __slots__ = ("answer", "on_notice")

    def __init__(self, answer: "asyncio.Future[bytes]", on_notice: Notice | None) -> None:
        self.answer = answer
        self.on_notice = on_notice


class Peer:
    """A `Wire` over a channel that takes messages one by one, such as a pipe."""

    def __init__(self, server: str, send: Callable[[bytes], None], *, on_notice: Notice) -> None:
        self._server = server
        self._send = send
        self._on_notice = on_notice
        self._ids = itertools.count(1)
        self._pending: dict[int, _Pending] = {}
        self._envelope: JsonObject = {}
        self._lost: str | None = None
        self.oddities = 0
        """How often the server said something that makes no sense."""

    @property
    def in_flight(self) -> int:
        """How many requests have no answer yet."""
        return len(self._pending)

    def use(self, *, envelope: JsonObject, headers: Mapping[str, str]) -> None:  # noqa: ARG002 (a channel has no headers)
        """Carry this in every request's `_meta`."""
        self._envelope = envelope

    async def request(
        self,
        method: str,
        fields: bytes = b"",
        *,
        meta: JsonObject | None = None,
        name: str | None = None,  # noqa: ARG002 (only HTTP names it)
        on_notice: Notice | None = None,
    ) -> bytes:
        """Ask, and return the JSON of the result."""
        if self._lost is not None:
            raise WireLost(self._lost, was_sent=False)
        number = next(self._ids)
        carried = self._envelope | (meta or {})
        if on_notice is not None:
            carried["progressToken"] = number
        pending = _Pending(asyncio.get_running_loop().create_future(), on_notice)
        self._pending[number] = pending
        self._send(
            b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}' % (number, encode(method), parameters(fields, carried))
        )
        try:
            return await pending.answer
        except asyncio.CancelledError:
            self._call_off(number, method)
            raise
        finally:
            self._pending.pop(number, None)

    async def notify(self, method: str, fields: bytes = b"") -> None:
        """Tell the server something."""
        self._tell(method, fields)

    def take(self, raw: bytes) -> None:
        """Take a message from the server; nonsense is counted and passed over."""
        message = read_message(raw)
        if message is None:
            self._wonder("something that is not JSON-RPC", raw)
        elif message.method is None:
            self._take_answer(message, raw)
        elif message.id is None:
            self._take_notice(message)
        else:
            self._refuse(message)

    def lose(self, reason: str) -> None:
        """Fail everything in flight: the channel is gone."""
        self._lost = reason
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(WireLost(reason))

    def _take_answer(self, message: Incoming, raw: bytes) -> None:
        pending = self._pending.get(message.id) if isinstance(message.id, int) else None
        if pending is None or pending.answer.done():
            # Late, twice, or never asked for: whoever asked has been answered.
            self._wonder("an answer that nobody waits for", raw)
            return
        if error := bytes(message.error):
            pending.answer.set_exception(refusal_of(error))
        else:
            pending.answer.set_result(bytes(message.result) or b"{}")

    def _take_notice(self, message: Incoming) -> None:
        assert message.method is not None
        params = bytes(message.params)
        if message.method == "notifications/progress":
            pending = self._pending_by_token(params)
            if pending is not None and pending.on_notice is not None:
                pending.on_notice(message.method, params)
            return
        self._on_notice(message.method, params)

    def _pending_by_token(self, params: bytes) -> _Pending | None:
        try:
            token = _token.decode(params).progressToken
        except msgspec.DecodeError:
            return None
        return self._pending.get(token) if isinstance(token, int) else None

    def _refuse(self, message: Incoming) -> None:
        """Answer a request of the server's own; `ping` is the only one that needs no client behind us."""
        request_id = encode(message.id)
        if message.method == "ping":
            self._send(b'{"jsonrpc":"2.0","id":%b,"result":{}}' % request_id)
            return
        refusal = encode({"code": -32601, "message": f"{message.method} has nobody to go to"})
        self._send(b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (request_id, refusal))

    def _call_off(self, number: int, method: str) -> None:
        if method != "initialize" and self._lost is None:
            self._tell("notifications/cancelled", b'"requestId":%d,"reason":"the caller gave up"' % number)

    def _tell(self, method: str, fields: bytes) -> None:
        self._send(b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (encode(method), parameters(fields, {})))

    def _wonder(self, what: str, raw: bytes) -> None:
        self.oddities += 1
        if self.oddities <= 10:
            event(
                _log,
                logging.WARNING,
                f"server sent {what}",
                server=self._server,
                text=raw[:200].decode(errors="replace"),
            )


def read_message(raw: bytes) -> Incoming | None:
    """Read a message from a server, None if it is none."""
    try:
        return _incoming.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def refusal_of(raw: bytes) -> ServerRefused:
    """Read the error of a JSON-RPC answer."""
    try:
        refusal = _refusal.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ServerRefused(-32603, "the server's error makes no sense")
    return ServerRefused(refusal.code, refusal.message, refusal.data)
