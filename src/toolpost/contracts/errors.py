"""The errors that Toolpost raises on purpose, by who can fix them, and the error object that a caller sees.

ToolpostError
├── CallerError                  the caller can fix it
│   ├── InvalidRequest           INVALID_REQUEST
│   │   └── UnknownTool          INVALID_REQUEST
│   ├── InvalidArguments         INVALID_PARAMS
│   ├── NotFound                 NOT_FOUND
│   ├── NoIndex                  NO_INDEX
│   ├── Unauthorized             UNAUTHORIZED
│   ├── Forbidden                FORBIDDEN
│   │   └── NotReadOnly          FORBIDDEN
│   ├── CredentialRequired       CREDENTIAL_REQUIRED
│   ├── LoginRequired            LOGIN_REQUIRED
│   ├── CallCancelled            CANCELLED
│   └── QueueOverloaded          QUEUE_OVERLOADED
├── SourceError                  the tool or the server behind it failed
│   ├── ToolTimedOut             TOOL_TIMEOUT
│   ├── ToolFailed               HANDLER_ERROR
│   ├── InvalidResult            OUTPUT_VALIDATION_FAILED
│   ├── UpstreamRefused          HANDLER_ERROR      (passed on as the JSON-RPC error that it was)
│   └── UpstreamUnavailable      UPSTREAM_UNAVAILABLE
├── OperatorError                the operator of this server can fix it
│   ├── ContractChanged          CONTRACT_CHANGED
│   ├── CapabilityMissing        CAPABILITY_MISSING
│   │   ├── ClientCannotAnswer   CAPABILITY_MISSING
│   │   └── CredentialUnreadable CAPABILITY_MISSING
│   ├── DownloadUnverified       DOWNLOAD_VERIFY_FAILED
│   ├── ArchiveUnsafe            ARCHIVE_UNSAFE
│   ├── ArchiveTooLarge          ARCHIVE_TOO_LARGE
│   ├── ContractRefused          INVALID_REQUEST    (at registration, never on the wire)
│   ├── PluginFailed             CAPABILITY_MISSING (at start, never on the wire)
│   └── BadConfiguration         INVALID_REQUEST    (at start, never on the wire)
│       └── BadLock              INVALID_REQUEST    (at start, never on the wire)
└── GatewayError                 INTERNAL, a bug in Toolpost
    └── StoreUnavailable         INTERNAL           (the database is unreachable, or too slow)

A part may derive its own from these. The first line of a class's docstring is the message of an error that is raised without one.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar

MESSAGE_LIMIT = 2_000
TAIL_LIMIT = 4_000


class ErrorCode(StrEnum):
    """The public codes. Added rarely, never reused; docs/reference/errors.md explains each."""

    INVALID_REQUEST = "INVALID_REQUEST"
    INVALID_PARAMS = "INVALID_PARAMS"
    NOT_FOUND = "NOT_FOUND"
    NO_INDEX = "NO_INDEX"
    UNAUTHORIZED = "UNAUTHORIZED"
    FORBIDDEN = "FORBIDDEN"
    CREDENTIAL_REQUIRED = "CREDENTIAL_REQUIRED"
    LOGIN_REQUIRED = "LOGIN_REQUIRED"
    CANCELLED = "CANCELLED"
    QUEUE_OVERLOADED = "QUEUE_OVERLOADED"
    STALE_LEASE = "STALE_LEASE"
    TOOL_TIMEOUT = "TOOL_TIMEOUT"
    HANDLER_ERROR = "HANDLER_ERROR"
    OUTPUT_VALIDATION_FAILED = "OUTPUT_VALIDATION_FAILED"
    UPSTREAM_UNAVAILABLE = "UPSTREAM_UNAVAILABLE"
    CONTRACT_CHANGED = "CONTRACT_CHANGED"
    CAPABILITY_MISSING = "CAPABILITY_MISSING"
    DOWNLOAD_VERIFY_FAILED = "DOWNLOAD_VERIFY_FAILED"
    ARCHIVE_UNSAFE = "ARCHIVE_UNSAFE"
    ARCHIVE_TOO_LARGE = "ARCHIVE_TOO_LARGE"
    INTERNAL = "INTERNAL"


class ToolpostError(Exception):
    """Something went wrong."""

    code: ClassVar[ErrorCode] = ErrorCode.INTERNAL

    def __init__(
        self,
        message: str | None = None,
        /,
        *,
        hint: str | None = None,
        stdout: str | None = None,
        stderr: str | None = None,
        **details: Any,
    ) -> None:
        text = message or (self.__doc__ or type(self).__name__).strip().splitlines()[0]
        self.message = text if len(text) <= MESSAGE_LIMIT else f"{text[:MESSAGE_LIMIT]}…"
        self.hint = hint
        self.stdout = stdout
        self.stderr = stderr
        self.details: Mapping[str, Any] = details
        super().__init__(self.message)

    def as_object(self) -> dict[str, Any]:
        """Return the error object of the wire; fields that do not apply are absent."""
        error: dict[str, Any] = {"code": self.code.value, "message": self.message}
        if self.hint:
            error["hint"] = self.hint
        if self.details:
            error["details"] = dict(self.details)
        for stream in ("stdout", "stderr"):
            if text := getattr(self, stream):
                # The end of an output says why a command failed, not its beginning.
                error[stream] = text if len(text) <= TAIL_LIMIT else f"…{text[-TAIL_LIMIT:]}"
        return error


class CallerError(ToolpostError):
    """The caller can fix this."""

    code = ErrorCode.INVALID_REQUEST


class InvalidRequest(CallerError):
    """The request is malformed."""


class UnknownTool(InvalidRequest):
    """No tool has this name."""


class InvalidArguments(CallerError):
    """The arguments break the tool's schema."""

    code = ErrorCode.INVALID_PARAMS


class NotFound(CallerError):
    """What was asked for is not there."""

    code = ErrorCode.NOT_FOUND


class NoIndex(CallerError):
    """An index is needed and has not been built."""

    code = ErrorCode.NO_INDEX


class Unauthorized(CallerError):
    """Who is calling is not known."""

    code = ErrorCode.UNAUTHORIZED


class Forbidden(CallerError):
    """The caller may not do this."""

    code = ErrorCode.FORBIDDEN


class NotReadOnly(Forbidden):
    """Only tools that are annotated read-only may be called."""


class CredentialRequired(CallerError):
    """The caller has no credential of its own for this server."""

    code = ErrorCode.CREDENTIAL_REQUIRED


class LoginRequired(CallerError):
    """The server behind this tool requires a login."""

    code = ErrorCode.LOGIN_REQUIRED


class CallCancelled(CallerError):
    """The call was cancelled."""

    code = ErrorCode.CANCELLED


class QueueOverloaded(CallerError):
    """Too many calls are waiting."""

    code = ErrorCode.QUEUE_OVERLOADED

    def __init__(
        self,
        message: str | None = None,
        /,
        *,
        retry_s: float = 1.0,
        is_own: bool = False,
        hint: str | None = None,
        **details: Any,
    ) -> None:
        """`retry_s` is when to try again; `is_own` says that the caller's own share is used up, not the whole queue."""
        if isinstance(given_ms := details.get("retryAfterMs"), int | float):
            # An error that another gateway passed on: its hint already says when to retry.
            retry_s = given_ms / 1000
        else:
            details["retryAfterMs"] = round(retry_s * 1000)
            again = f"try again in {retry_s:g} s"
            hint = f"{hint}; {again}" if hint else again
        super().__init__(message, hint=hint, **details)
        self.retry_s = retry_s
        self.is_own = is_own


class SourceError(ToolpostError):
    """The tool, or the server behind it, failed."""

    code = ErrorCode.HANDLER_ERROR


class ToolTimedOut(SourceError):
    """The tool did not answer within its time limit."""

    code = ErrorCode.TOOL_TIMEOUT

    def __init__(self, message: str | None = None, /, *, timeout_ms: int, **options: Any) -> None:
        super().__init__(message, **options)
        self.timeout_ms = timeout_ms

    def as_object(self) -> dict[str, Any]:
        """Return the error object, with the limit that passed."""
        return super().as_object() | {"timeoutMs": self.timeout_ms}


class ToolFailed(SourceError):
    """The tool failed."""


class InvalidResult(SourceError):
    """The tool's result breaks its output schema."""

    code = ErrorCode.OUTPUT_VALIDATION_FAILED

    def __init__(self, message: str | None = None, /, *, content: Sequence[Any] = (), **options: Any) -> None:
        super().__init__(message, **options)
        self.content = content
        """The content blocks of the invalid result; sent after the error."""
        self.facts: dict[str, Any] | None = None
        """Sent beside the error, under our key in `_meta`: where the rest of the content is."""


class UpstreamRefused(SourceError):
    """The server behind this tool answered with a protocol error."""

    def __init__(self, message: str, /, *, rpc_code: int, data: Any = None) -> None:
        super().__init__(message)
        self.rpc_code = rpc_code
        self.data = data


class UpstreamUnavailable(SourceError):
    """The server behind this tool is not available."""

    code = ErrorCode.UPSTREAM_UNAVAILABLE
    was_sent = True
    """Whether the server may have seen the call. Only a call that it cannot have seen is safe to repeat."""


class OperatorError(ToolpostError):
    """The operator of this server can fix this."""

    code = ErrorCode.CAPABILITY_MISSING


class ContractChanged(OperatorError):
    """The tool is no longer what was locked."""

    code = ErrorCode.CONTRACT_CHANGED


class CapabilityMissing(OperatorError):
    """An optional dependency or platform feature is missing."""


class ClientCannotAnswer(CapabilityMissing):
    """The client of this call cannot be asked: it has not declared that it answers such requests."""

    def __init__(self, message: str | None = None, /, *, required: Mapping[str, Any], **options: Any) -> None:
        """`required` are the capabilities that the client would have to declare, as in MCP."""
        super().__init__(message, **options)
        self.required = required


class CredentialUnreadable(CapabilityMissing):
    """A stored credential cannot be decrypted with the key at hand."""


# This and the next two are not raised yet: their codes are reserved for the installation of servers from archives.
class DownloadUnverified(OperatorError):
    """A download does not match its checksum."""

    code = ErrorCode.DOWNLOAD_VERIFY_FAILED


class ArchiveUnsafe(OperatorError):
    """An archive holds something unsafe."""

    code = ErrorCode.ARCHIVE_UNSAFE


class ArchiveTooLarge(OperatorError):
    """An archive is too large."""

    code = ErrorCode.ARCHIVE_TOO_LARGE


class ContractRefused(OperatorError):
    """A tool cannot be registered as it is defined."""

    code = ErrorCode.INVALID_REQUEST


class PluginFailed(OperatorError):
    """A plugin could not be loaded or started."""


class BadConfiguration(OperatorError):
    """The configuration cannot be used."""

    code = ErrorCode.INVALID_REQUEST


class BadLock(BadConfiguration):
    """The lock file cannot be used."""


class GatewayError(ToolpostError):
    """Something went wrong inside Toolpost."""


class StoreUnavailable(GatewayError):
    """The store cannot be reached."""


def first_error(raised: Exception) -> ToolpostError:
    """Return the first error of a group; several servers may fail to start at once."""
    while isinstance(raised, ExceptionGroup):
        raised = raised.exceptions[0]
    return raised if isinstance(raised, ToolpostError) else GatewayError(str(raised) or type(raised).__name__)
