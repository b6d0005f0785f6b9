"""What was last wrong with a server, and how its callers are told."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from toolpost.contracts.errors import ToolpostError, UpstreamUnavailable
from toolpost.upstreams.wire import ServerRefused

_WORDS_SHOWN: Final = 10


class Trouble:
    """The last thing that went wrong."""

    def __init__(self, server: str, *, conceal: Callable[[str], str] = str) -> None:
        self.server = server
        self._conceal = conceal
        self.last_error: str | None = None
        self.last_error_at: float | None = None
        """In seconds since 1970."""
        self.last_words: tuple[str, ...] = ()
        """The last lines of stderr of the process that failed."""
        self.hint: str | None = None

    def note(self, reason: str, *, words: Sequence[str] = (), hint: str | None = None) -> UpstreamUnavailable:
        """Remember what went wrong; returns it as an error."""
        reason, words = self._conceal(reason), [self._conceal(word) for word in words]
        self.last_words = tuple(words) or self.last_words
        self.last_error_at = time.time()
        self.last_error = f"{reason}; it said: {words[-1][:300]}" if words else reason
        self.hint = hint
        return self.unavailable(self.last_error, hint=hint, words=words)

    def unavailable(self, reason: str, *, hint: str | None = None, words: Sequence[str] = ()) -> UpstreamUnavailable:
        """Make the error of a call that the server cannot answer."""
        return UpstreamUnavailable(
            f"The server `{self.server}` is not available: {reason}",
            hint=hint or "the next call starts it again, if it can be",
            stderr="\n".join(words[-_WORDS_SHOWN:]) or None,
            server=self.server,
        )


def reason_of(error: BaseException) -> str:
    """Say in words why a start failed."""
    if isinstance(error, BaseExceptionGroup):
        return reason_of(error.exceptions[0])
    if isinstance(error, ServerRefused):
        return f"it refused to be greeted: {error.message}"
    return str(error) or type(error).__name__


def hint_of(error: BaseException) -> str | None:
    """Return what an error says to do about it."""
    if isinstance(error, BaseExceptionGroup):
        return hint_of(error.exceptions[0])
    return error.hint if isinstance(error, ToolpostError) else None
