"""The error that only the bus raises, and one that several of its modules raise."""

from toolpost import ErrorCode, NotFound
from toolpost.contracts import CallerError


class StaleLease(CallerError):
    """The task has been given to another worker."""

    code = ErrorCode.STALE_LEASE


def unknown_task(task: str, *, hint: str = "`submit_task` first") -> NotFound:
    """Make the error for a task that does not exist."""
    return NotFound(f"Unknown task `{task}`.", hint=hint, bead_id=task)
