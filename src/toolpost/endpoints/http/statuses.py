"""The HTTP status of each error code, for every JSON API. A code alone decides, so that status and body never disagree."""

from collections.abc import Mapping
from typing import Final

from toolpost.contracts.errors import ErrorCode, QueueOverloaded, ToolpostError
from toolpost.endpoints.http.refusal import Headers, overload_status, retry_headers

STATUSES: Final[Mapping[ErrorCode, int]] = {
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.INVALID_PARAMS: 400,
    ErrorCode.UNAUTHORIZED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.CREDENTIAL_REQUIRED: 403,
    ErrorCode.LOGIN_REQUIRED: 403,
    ErrorCode.NOT_FOUND: 404,
    # The state of the thing does not allow it now: another request ended it, took it over, changed it, or has to come first.
    ErrorCode.CANCELLED: 409,
    ErrorCode.STALE_LEASE: 409,
    ErrorCode.CONTRACT_CHANGED: 409,
    ErrorCode.NO_INDEX: 409,
    ErrorCode.INTERNAL: 500,
    # A tool, a server or a download did answer, and the answer cannot be used.
    ErrorCode.HANDLER_ERROR: 502,
    ErrorCode.OUTPUT_VALIDATION_FAILED: 502,
    ErrorCode.DOWNLOAD_VERIFY_FAILED: 502,
    ErrorCode.ARCHIVE_UNSAFE: 502,
    ErrorCode.ARCHIVE_TOO_LARGE: 502,
    # Nothing was done: it may be tried again, when the server is there or the operator has installed what is missing.
    ErrorCode.UPSTREAM_UNAVAILABLE: 503,
    ErrorCode.CAPABILITY_MISSING: 503,
    ErrorCode.QUEUE_OVERLOADED: 503,
    ErrorCode.TOOL_TIMEOUT: 504,
}


def status_of(error: ToolpostError) -> int:
    """Return the status of an error: that of its code, and 429 where the caller's own share is used up."""
    return overload_status(error) if isinstance(error, QueueOverloaded) else STATUSES[error.code]


def headers_of(error: ToolpostError) -> Headers:
    """Return the headers of an error: `Retry-After` where it says when to try again."""
    return retry_headers(error) if isinstance(error, QueueOverloaded) else []
