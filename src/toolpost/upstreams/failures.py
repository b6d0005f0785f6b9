"""Failures of a server: when it may be started again, and how much of the last one a caller may see.

The last lines of stderr explain most failures. They may be about the call of another caller, so they are shown to callers whose
calls alone the process had, and to those who may see all calls.
"""

import re
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeVar

from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.contracts.errors import ToolpostError, UpstreamUnavailable
from toolpost.fairness import Callers
from toolpost.upstreams.transport import ServerRefused

FIRST_S: Final = 1.0
LIMIT_S: Final = 30.0
FAILURES_LIMIT: Final = 5

LOSSES_KEPT: Final = 20

_SHOWN_LINES: Final = 10

RETRY_HINT: Final = "the next call tries to start it again"

_NPM: Final = re.compile(r"npm (?:error|ERR!)")
_NPM_CAUSE: Final = re.compile(r"npm (?:error|ERR!) (?!code |errno |syscall |path )\S")
_ENDINGS: Final = (
    (re.compile(r"Node\.js v\d"), re.compile(r"(?:Uncaught )?\w*Error\b.*: ")),
    (re.compile(r"(?:Run|See) '(?:docker|podman)\b.* --help'"), re.compile(r"(?:docker|podman|Error): ")),
    (re.compile(r" +For further information visit https://errors\.pydantic\.dev/"), re.compile(r" +.* \[type=")),
)
"""How the last line of a failed program begins where it is not the cause, and how the line that is."""

_E = TypeVar("_E", bound=BaseException)


class Backoff:
    """When a server whose starts fail may be started again; after `FAILURES_LIMIT` of them, not before `Supervisor.start`."""

    def __init__(self) -> None:
        self.failures = 0
        self.is_suspended = False
        self._retry_at = 0.0
        self._failed_at = 0.0

    def note_failure(self, *, began_at: float) -> None:
        """Count a failed start; starts that ran at the same time count as one."""
        # Two sessions that start a broken server at the same time have seen one failure, not two.
        if began_at < self._failed_at:
            return
        self._failed_at = time.monotonic()
        self.failures += 1
        self.is_suspended = self.failures >= FAILURES_LIMIT
        self._retry_at = self._failed_at + min(LIMIT_S, FIRST_S * 2 ** (self.failures - 1))

    def forget(self) -> None:
        self.failures = 0
        self.is_suspended = False
        self._retry_at = 0.0

    @property
    def wait_s(self) -> float:
        """Seconds until the next start is allowed; at most 0 if it is now."""
        return self._retry_at - time.monotonic()


class LastFailure:
    def __init__(self, server: str, callers: Callers, *, conceal: Callable[[str], str] = str) -> None:
        self.server = server
        self._callers = callers
        self._reason = ""
        self._lines: Sequence[str] = ()
        """The last lines of stderr of the process that failed now, empty if it was no process."""
        self._served: Collection[CallerId] = ()
        """The callers whose calls that process had: the lines may be about any of them."""
        self.conceal = conceal
        """Masks the secrets that the server was last started with."""
        self.last_error: str | None = None
        self.last_error_at: float | None = None
        """In seconds since 1970."""
        self.stderr_tail: tuple[str, ...] = ()
        """The last lines of stderr that any failed process left."""
        self.hint: str | None = None
        self.losses: deque[float] = deque(maxlen=LOSSES_KEPT)
        """When running instances ended unasked, in seconds since 1970, the last ones."""

    def note(
        self,
        reason: str,
        *,
        lines: Sequence[str] = (),
        hint: str | None = None,
        served: Collection[CallerId] = (),
        caller: Caller | None = None,
    ) -> UpstreamUnavailable:
        """Remember a failure; returns the error that this caller sees."""
        # Servers print their tokens when they refuse them.
        reason, lines = self.conceal(reason), [self.conceal(line) for line in lines]
        self.stderr_tail = tuple(lines) or self.stderr_tail
        self.last_error_at = time.time()
        self.last_error = f"{reason}; it said: {choose_telling_line(lines)[:300]}" if lines else reason
        self.hint = hint
        self._reason, self._lines, self._served = reason, lines, frozenset(served)
        return self.make_error_for(caller, hint=hint)

    def make_error_for(
        self, caller: Caller | None, *, before: str = "", hint: str | None = None
    ) -> UpstreamUnavailable:
        """Make an error of the last failure, as this caller (None for the gateway itself) may see it.

        `before` is put before the reason. Lines of a process that had calls of others are left out for callers who may not see
        all calls.
        """
        if not self._lines:
            return self.make_error(f"{before}{self._reason}", hint=hint)
        is_theirs = caller is None or not self._callers.are_several or set(self._served) <= {caller.id}
        if caller is not None and not is_theirs and not self._callers.may_see_all(caller):
            return self.make_error(
                f"{before}{self._reason}", hint=hint or "a caller with `admin = true` can see its last output"
            )
        reason = f"{before}{self._reason}; it said: {choose_telling_line(self._lines)[:300]}"
        return self.make_error(reason, hint=hint, lines=self._lines)

    def make_error(self, reason: str, *, hint: str | None = None, lines: Sequence[str] = ()) -> UpstreamUnavailable:
        return UpstreamUnavailable(
            f"The server `{self.server}` is not available: {reason}",
            hint=hint or RETRY_HINT,
            stderr="\n".join(lines[-_SHOWN_LINES:]) or None,
            server=self.server,
        )


def choose_telling_line(lines: Sequence[str]) -> str:
    """Return the line of stderr that names the cause: the last one, except where a program is known to end with another.

    npm ends with the path of its log, Node.js with its version, Docker with its help, and pydantic with a link.
    """
    if _NPM.match(lines[-1]):
        return next((line for line in lines if _NPM_CAUSE.match(line)), lines[-1])
    for ending, cause in _ENDINGS:
        if ending.match(lines[-1]):
            return next((line for line in reversed(lines) if cause.match(line)), lines[-1]).strip()
    return lines[-1]


def find_error(error: BaseException, kind: type[_E]) -> _E | None:
    """Return the error of a kind that an exception is, or that is in its groups; None if there is none."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for each in error.exceptions if (found := find_error(each, kind)) is not None), None)
    return error if isinstance(error, kind) else None


def reason_of(error: BaseException) -> str:
    """Describe why a start failed."""
    if isinstance(error, BaseExceptionGroup):
        return reason_of(error.exceptions[0])
    if isinstance(error, ServerRefused):
        return f"it refused the handshake: {error.message}"
    return str(error) or type(error).__name__


def is_refusal(error: BaseException) -> bool:
    """Whether the server answered with a JSON-RPC error."""
    if isinstance(error, BaseExceptionGroup):
        return is_refusal(error.exceptions[0])
    return isinstance(error, ServerRefused)


def hint_of(error: BaseException) -> str | None:
    """Return the hint of an error, None if it has none."""
    if isinstance(error, BaseExceptionGroup):
        return hint_of(error.exceptions[0])
    return error.hint if isinstance(error, ToolpostError) else None


def copy_error(error: _E) -> _E:
    """Copy an error to raise it again: one that is raised many times keeps the frames of all of them."""
    made = type(error).__new__(type(error), *error.args)
    made.__dict__.update(error.__dict__)
    return made
