"""A request that is turned away before anybody reads its body."""

import math

from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import ErrorCode, QueueOverloaded
from toolpost.protocol.rpc import INVALID_REQUEST, ProtocolError

Headers = list[tuple[bytes, bytes]]


class Refused(Exception):
    """Why, as HTTP says it and as JSON-RPC does."""

    def __init__(
        self,
        status: int,
        code: ErrorCode,
        message: str,
        *,
        headers: Headers | None = None,
        error: JsonObject | None = None,
    ) -> None:
        """Take also the whole error object, where there is more to it than a code."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers
        self.body = ProtocolError(INVALID_REQUEST, message, data=error or {"code": code.value}).as_response()


def unauthorized(message: str, challenge: str = "Bearer") -> Refused:
    """Say that nobody knows who this is, and how to show it."""
    return Refused(401, ErrorCode.UNAUTHORIZED, message, headers=[(b"www-authenticate", challenge.encode("latin-1"))])


def forbidden(message: str, challenge: str | None = None) -> Refused:
    """Say that they are known and may not."""
    headers = [(b"www-authenticate", challenge.encode("latin-1"))] if challenge else None
    return Refused(403, ErrorCode.FORBIDDEN, message, headers=headers)


def misdirected(message: str) -> Refused:
    """Say that another server is meant."""
    return Refused(421, ErrorCode.FORBIDDEN, message)


def overloaded(error: QueueOverloaded) -> Refused:
    """Say that there is too much of something: of the caller's own, or of everybody's; and when to try again."""
    return Refused(
        overload_status(error), error.code, error.message, headers=retry_headers(error), error=error.as_object()
    )


def overload_status(error: QueueOverloaded) -> int:
    """Return 429 where a caller's own share is used up, 503 where everything is."""
    return 429 if error.is_own else 503


def retry_headers(error: QueueOverloaded) -> Headers:
    """Say in whole seconds when to try again."""
    return [(b"retry-after", b"%d" % max(1, math.ceil(error.retry_s)))]
