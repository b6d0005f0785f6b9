"""Exit codes: each tells who can fix the problem."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, Self

from toolpost.contracts.errors import ErrorCode, OperatorError, PluginFailed, ToolpostError


class ExitCode(IntEnum):
    """Every exit code of `toolpost`; docs/reference/cli.md has the same table."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    OK = 0, "Success. Also a server that was stopped and shut down."
    FAILED = (
        1,
        "The tool, or the server or plugin behind it, failed; the audit does not verify; `doctor` or `check` found a problem.",
    )
    USAGE = (
        2,
        (
            "Wrong usage: bad arguments, an unknown tool, command or option."
            " Also `check` if a server or plugin did not start, and `audit verify` if there is nothing to verify."
        ),
    )
    INCOMPLETE = USAGE  # nothing failed, but not everything could be looked at
    SETUP = 3, "Wrong setup: the configuration, an address in use, a missing capability."
    INTERNAL = 4, "A bug in Toolpost."
    TIMED_OUT = 124, "The time limit of the tool passed, or that of `--timeout`."
    CANCELLED = 130, "Cancelled with Ctrl-C or SIGTERM."

    @classmethod
    def of(cls, code: str) -> "ExitCode":
        """Return the exit code for an answer with this `ErrorCode`; FAILED for a code that only a newer gateway knows."""
        return _CODES.get(code, cls.FAILED)


_CODES: Final[Mapping[str, ExitCode]] = {
    ErrorCode.INVALID_REQUEST: ExitCode.USAGE,
    ErrorCode.INVALID_PARAMS: ExitCode.USAGE,
    ErrorCode.NOT_FOUND: ExitCode.USAGE,
    ErrorCode.NO_INDEX: ExitCode.USAGE,
    ErrorCode.UNAUTHORIZED: ExitCode.USAGE,
    ErrorCode.FORBIDDEN: ExitCode.USAGE,
    ErrorCode.CREDENTIAL_REQUIRED: ExitCode.USAGE,
    ErrorCode.LOGIN_REQUIRED: ExitCode.USAGE,
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


def exit_code_of_error(error: ToolpostError) -> ExitCode:
    if isinstance(error, PluginFailed):
        return ExitCode.FAILED
    # Some of the operator's errors at start-up have a code that on the wire is the caller's.
    return ExitCode.SETUP if isinstance(error, OperatorError) else ExitCode.of(error.code)
