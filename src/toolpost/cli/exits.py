"""What the process ends with: a number that says who can put it right."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, Self

from toolpost.contracts.errors import ErrorCode, OperatorError, ToolpostError


class ExitCode(IntEnum):
    """Every number that `toolpost` ends with; docs/reference/cli.md has the same table."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        """Keep what the number means beside it."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    OK = 0, "It worked. A server that was asked to end, and did, ends with this too."
    FAILED = (
        1,
        "The tool, or the server behind it, failed; the audit does not verify; `doctor` or `check` found a problem.",
    )
    USAGE = (
        2,
        (
            "Whoever typed it can put it right: bad arguments, an unknown tool, command or option."
            " `check` ends with this if it could not tell, because a server did not start,"
            " and `audit --verify` if there is nothing to verify."
        ),
    )
    SETUP = 3, "Whoever runs Toolpost can: the configuration, an address in use, a missing capability."
    INTERNAL = 4, "A bug in Toolpost."
    TIMED_OUT = 124, "The tool's time limit passed, or the one given with `--timeout`."
    CANCELLED = 130, "Cancelled with Ctrl-C or SIGTERM."


_CODES: Final[Mapping[str, ExitCode]] = {
    ErrorCode.INVALID_REQUEST: ExitCode.USAGE,
    ErrorCode.INVALID_PARAMS: ExitCode.USAGE,
    ErrorCode.NOT_FOUND: ExitCode.USAGE,
    ErrorCode.NO_INDEX: ExitCode.USAGE,
    ErrorCode.UNAUTHORIZED: ExitCode.USAGE,
    ErrorCode.FORBIDDEN: ExitCode.USAGE,
    ErrorCode.CANCELLED: ExitCode.CANCELLED,
    ErrorCode.QUEUE_OVERLOADED: ExitCode.USAGE,
    ErrorCode.STALE_LEASE: ExitCode.USAGE,
    ErrorCode.TOOL_TIMEOUT: ExitCode.TIMED_OUT,
    ErrorCode.HANDLER_ERROR: ExitCode.FAILED,
    ErrorCode.OUTPUT_VALIDATION_FAILED: ExitCode.FAILED,
    ErrorCode.UPSTREAM_UNAVAILABLE: ExitCode.FAILED,
    ErrorCode.CONTRACT_CHANGED: ExitCode.SETUP,
    ErrorCode.CAPABILITY_MISSING: ExitCode.SETUP,
    ErrorCode.DOWNLOAD_VERIFY_FAILED: ExitCode.SETUP,
    ErrorCode.ARCHIVE_UNSAFE: ExitCode.SETUP,
    ErrorCode.ARCHIVE_TOO_LARGE: ExitCode.SETUP,
    ErrorCode.INTERNAL: ExitCode.INTERNAL,
}


def exit_code_of(code: str) -> ExitCode:
    """Say how the process ends after a call that was answered with this `ErrorCode`, or with one that a newer gateway knows."""
    return _CODES.get(code, ExitCode.FAILED)


def exit_code_for(error: ToolpostError) -> ExitCode:
    """Say how the process ends after this error."""
    # At start-up some of the operator's errors carry a code that is the caller's on the wire.
    return ExitCode.SETUP if isinstance(error, OperatorError) else exit_code_of(error.code)
