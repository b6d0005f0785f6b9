"""Parses messages of a server: answers, notifications, and requests of its own. No I/O."""

from typing import Final

import msgspec

from toolpost.base.ids import Json
from toolpost.protocol.shape import DECODE_LIMIT_BYTES, SDK_VALUE_LIMIT, BadShape, check_shape, decode
from toolpost.upstreams.transport import ServerRefused


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
