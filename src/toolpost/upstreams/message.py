"""What a server says, read: an answer, a notification, or a request of its own. No I/O."""

import msgspec

from toolpost.contracts.ids import Json
from toolpost.upstreams.wire import ServerRefused


class Incoming(msgspec.Struct):
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
    data: Json = None


class _Token(msgspec.Struct):
    progressToken: int | str | None = None  # noqa: N815 (as on the wire)


_incoming = msgspec.json.Decoder(Incoming)
_refusal = msgspec.json.Decoder(_Refusal)
_token = msgspec.json.Decoder(_Token)


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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ServerRefused(-32603, "the server's error makes no sense")
    return ServerRefused(refusal.code, refusal.message, refusal.data)


def token_of(params: bytes) -> int | str | None:
    """Read whose progress a notification tells of."""
    try:
        return _token.decode(params).progressToken
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
