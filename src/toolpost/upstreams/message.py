"""Messages to and from one server, as bytes: its answers, notifications and requests parsed, requests to it written. No I/O."""

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.protocol.era import CLIENT_CAPABILITIES, LOG_LEVEL
from toolpost.protocol.shape import DECODE_LIMIT_BYTES, SDK_VALUE_LIMIT, BadShape, check_shape, decode
from toolpost.upstreams.transport import ServerRefused, write_params

if TYPE_CHECKING:
    from toolpost.upstreams.server_requests import ClientChannel
    from toolpost.upstreams.transport import UpstreamRequest


class IncomingMessage(msgspec.Struct):
    id: int | str | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")

    @property
    def refusal(self) -> bytes:
        """The JSON of the error, empty if there is none: some servers send `null` beside every result."""
        error = bytes(self.error)
        return b"" if error == b"null" else error


class _Refusal(msgspec.Struct):
    code: int = -32603
    message: str = "the server gave no reason"
    data: msgspec.Raw = msgspec.Raw(b"null")


class _Token(msgspec.Struct):
    progressToken: int | str | None = None  # noqa: N815 (as on the wire)


_SMALL_BYTES: Final = 4_096

_incoming = msgspec.json.Decoder(IncomingMessage)
_refusal = msgspec.json.Decoder(_Refusal)
_token = msgspec.json.Decoder(_Token)


def parse_message(raw: bytes) -> IncomingMessage | None:
    """Parse a message; None if it is not JSON-RPC, or a request or notification whose parameters exceed the limits."""
    if raw[:1] != b"{" and raw.lstrip()[:1] != b"{":
        return None  # Stray output on stdout is common, and the decoder takes longer to reject it.
    try:
        message = _incoming.decode(raw)
        if message.method is not None and len(raw) > _SMALL_BYTES:
            # These parameters are decoded here, and perhaps by the SDK; results are forwarded as bytes, and need no check.
            params = bytes(message.params)
            if len(params) > DECODE_LIMIT_BYTES:
                return None
            check_shape(params, value_limit=SDK_VALUE_LIMIT)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadShape):
        return None
    return message


def parse_error(raw: bytes) -> ServerRefused:
    """Parse the error of an answer; one that cannot be parsed becomes an internal error."""
    try:
        refusal = _refusal.decode(raw)
        data: Json = decode(bytes(refusal.data))
    except BadShape as error:
        return ServerRefused(-32603, f"the server's error {error}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ServerRefused(-32603, "the server's error is not a valid error object")
    return ServerRefused(refusal.code, refusal.message, data)


def parse_progress_token(params: bytes) -> int | str | None:
    """Return the progress token of a progress notification, None if it has none."""
    try:
        return _token.decode(params).progressToken
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class RequestWriter:
    """The `_meta` that the agreed revision puts into every request; empty in the handshake era."""

    __slots__ = ("_carried", "_plain")

    def __init__(self, carried: JsonObject) -> None:
        self._carried = carried
        self._plain = write_params(b"", carried)[1:-1]

    def write(self, number: int, request: "UpstreamRequest") -> bytes:
        """Write the JSON of a request; its id is its progress token too, if it has a listener for that."""
        fields, client_channel = request.fields, request.client_channel
        if request.meta or request.on_progress is not None or client_channel is not None:
            carried = _make_meta(client_channel, self._carried, request.meta)
            if request.on_progress is not None:
                carried["progressToken"] = number
            inside = write_params(fields, carried)
        elif fields and self._plain:
            inside = b"{%b,%b}" % (fields, self._plain)
        else:
            inside = b"{%b}" % (fields or self._plain)
        return b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}' % (number, request.method.encode(), inside)


def cancellation_reason(cancelled: asyncio.CancelledError) -> str:
    """Return the reason that the cancel scope was given, for the server; the exception's text has it."""
    return str(cancelled).partition("; reason: ")[2] or "the caller gave up"


def _make_meta(client_channel: "ClientChannel | None", request_meta: JsonObject, meta: JsonObject | None) -> JsonObject:
    """Make the `_meta` of a request; in the stateless era it declares the capabilities of the calling client."""
    carried = request_meta | meta if meta else dict(request_meta)
    if client_channel is not None and request_meta:
        carried[CLIENT_CAPABILITIES] = client_channel.capabilities
        if client_channel.log_level is not None:
            carried[LOG_LEVEL] = client_channel.log_level
    return carried
