"""A request that is turned away before anybody reads its body."""

from toolpost.contracts.errors import ErrorCode
from toolpost.protocol.rpc import INVALID_REQUEST, ProtocolError

Headers = list[tuple[bytes, bytes]]


class Refused(Exception):
    """Why, as HTTP says it and as JSON-RPC does."""

    def __init__(self, status: int, code: ErrorCode, message: str, *, headers: Headers | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers
        self.body = ProtocolError(INVALID_REQUEST, message, data={"code": code.value}).as_response()


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
