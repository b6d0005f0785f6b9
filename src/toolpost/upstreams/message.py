"""What a server says, read: an answer, a notification, or a request of its own. No I/O."""

from typing import Final

import msgspec

from toolpost.base.ids import Json
from toolpost.protocol.shape import DECODE_LIMIT_BYTES, SDK_VALUE_LIMIT, BadShape, check_shape, decode
from toolpost.upstreams.transport import ServerRefused


class IncomingMessage(msgspec.Struct):
    """A message from a server."""

    id: int | str | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")

    @property
    def refusal(self) -> bytes:
        """The error, empty if there is none: some servers send `null` beside every result."""
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
    """Read a message from a server, None if it is none, or one of its own that would take long to decode."""
    if raw[:1] != b"{" and raw.lstrip()[:1] != b"{":
        return None  # What a server prints that never meant to: the decoder takes longer to say so.
    try:
        message = _incoming.decode(raw)
        if message.method is not None and len(raw) > _SMALL_BYTES:
            _check_params(bytes(message.params))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadShape):
        return None
    return message


def _check_params(params: bytes) -> None:
    """Hold what a server says by itself to limits: it is decoded, and the SDK may read it. A result is passed on in bytes."""
    if len(params) > DECODE_LIMIT_BYTES:
        raise BadShape(f"has more than {DECODE_LIMIT_BYTES} bytes")
    check_shape(params, value_limit=SDK_VALUE_LIMIT)


def parse_error(raw: bytes) -> ServerRefused:
    """Read the error of a JSON-RPC answer."""
    try:
        refusal = _refusal.decode(raw)
        data: Json = decode(bytes(refusal.data))
    except BadShape as error:
        return ServerRefused(-32603, f"the server's error {error}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ServerRefused(-32603, "the server's error makes no sense")
    return ServerRefused(refusal.code, refusal.message, data)


def parse_progress_token(params: bytes) -> int | str | None:
    """Read whose progress a notification tells of."""
    try:
        return _token.decode(params).progressToken
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
