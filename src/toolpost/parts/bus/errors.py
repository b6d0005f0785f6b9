"""The error that only the bus raises."""

from toolpost import ErrorCode
from toolpost.contracts import CallerError


class StaleLease(CallerError):
    """The task has been given to another worker."""

    code = ErrorCode.STALE_LEASE
