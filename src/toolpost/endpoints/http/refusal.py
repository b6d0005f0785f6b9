"""A request that is refused with an HTTP status, and a JSON-RPC error in its body."""

import math

from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import ErrorCode, QueueOverloaded
from toolpost.protocol.rpc import INVALID_REQUEST, ProtocolError

Headers = list[tuple[bytes, bytes]]


class Refused(Exception):
    """The status, headers and body of the response."""

    def __init__(
        self,
        status: int,
        code: ErrorCode,
        message: str,
        *,
        headers: Headers | None = None,
        error: JsonObject | None = None,
    ) -> None:
        """`error` is the whole error object, where it has more than a code."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers
        self.body = ProtocolError(INVALID_REQUEST, message, data=error or {"code": code.value}).as_response()


def unauthorized(message: str, challenge: str = "Bearer") -> Refused:
    """Make a 401: the request has no valid token. `challenge` is the `WWW-Authenticate` header."""
    return Refused(401, ErrorCode.UNAUTHORIZED, message, headers=[(b"www-authenticate", challenge.encode("latin-1"))])


def forbidden(message: str, challenge: str | None = None) -> Refused:
    """Make a 403: the caller is known and may not do this."""
    headers = [(b"www-authenticate", challenge.encode("latin-1"))] if challenge else None
    return Refused(403, ErrorCode.FORBIDDEN, message, headers=headers)


def misdirected(message: str) -> Refused:
    """Make a 421: the Host header names another server."""
    return Refused(421, ErrorCode.FORBIDDEN, message)


def overloaded(error: QueueOverloaded) -> Refused:
    """Make a 429 or 503, with the error object and `Retry-After`."""
    return Refused(
        overload_status(error), error.code, error.message, headers=retry_headers(error), error=error.as_object()
    )


def overload_status(error: QueueOverloaded) -> int:
    """Return 429 where a caller's own share is used up, 503 where the total is."""
    return 429 if error.is_own else 503


def retry_headers(error: QueueOverloaded) -> Headers:
    """Make a `Retry-After` header, in whole seconds."""
    return [(b"retry-after", b"%d" % max(1, math.ceil(error.retry_s)))]
