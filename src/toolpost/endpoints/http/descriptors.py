"""File descriptors: raising their limit, and recognizing errors that come from it."""

import errno
import logging
import os
import sys
import time
from typing import Any, Final

from toolpost.base.events import event
from toolpost.contracts.errors import ErrorCode
from toolpost.endpoints.http.refusal import Refused

RAISED_LIMIT: Final = 65_536
"""The limit is raised to this at most: where the hard limit is a billion, some programs take minutes to close them all."""

RETRY_S: Final = 5
REPEAT_S: Final = 10.0

_ERRNOS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_TEXTS: Final = tuple(os.strerror(number) for number in _ERRNOS)

_log = logging.getLogger("toolpost.http")


def raise_descriptor_limit() -> int:
    """Raise the soft limit as far as this process may, and return it."""
    if sys.platform == "win32":
        return RAISED_LIMIT
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    highest = RAISED_LIMIT if hard == unlimited else min(hard, RAISED_LIMIT)
    if soft != unlimited and soft < highest:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
        except (OSError, ValueError):  # macOS has a limit of its own below the hard one
            return soft
        soft = highest
    return RAISED_LIMIT if soft == unlimited else soft


def is_out_of_descriptors(error: BaseException) -> bool:
    """Whether an error, or one of its causes, is the limit on descriptors."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _ERRNOS:
            return True
        # The loader of extension modules reports it as text only.
        if isinstance(seen, ImportError) and any(text in str(seen) for text in _TEXTS):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def exhausted() -> Refused:
    """Make a 503."""
    return Refused(
        503,
        ErrorCode.QUEUE_OVERLOADED,
        "The server has no file descriptors left; try again in a moment",
        headers=[(b"retry-after", b"%d" % RETRY_S)],
    )


class ThrottledEvent:
    """A log event that is written at most every `REPEAT_S`, with the number of times that it happened since."""

    def __init__(self, name: str, level: int = logging.WARNING) -> None:
        self._name = name
        self._level = level
        self._at = -REPEAT_S
        self._times = 0

    def log(self, **fields: Any) -> None:
        """Log it, or count it until it may be logged again."""
        self._times += 1
        now = time.monotonic()
        if now - self._at >= REPEAT_S:
            event(_log, self._level, self._name, times=self._times, **fields)
            self._at, self._times = now, 0


OUT_OF_DESCRIPTORS: Final = ThrottledEvent("out of file descriptors", logging.ERROR)


def warn_exhausted(where: str) -> None:
    """Log that descriptors ran out, and what to do."""
    OUT_OF_DESCRIPTORS.log(where=where, hint="raise the limit (ulimit -n)")
