"""Requests that are refused for what they name: a tool, resource, prompt, skill, method or server that is unknown or hidden.

The caller cannot tell the two apart, and no tool runs, so that there is no audit entry of a call. The log has lines of them,
with caller and name, so that probing is seen; the counter has them all.
"""

import logging
from typing import Any, Final, Literal

from toolpost.base.caller import Caller
from toolpost.base.events import event
from toolpost.base.log_limit import LogLimit
from toolpost.metrics import Counter

_log = logging.getLogger("toolpost.refusals")

Kind = Literal["tool", "resource", "prompt", "skill", "method", "server", "endpoint"]

LINES: Final = 10
"""Lines of one caller in ten seconds; more would fill the log, which is kept up to a size."""
NAME_LIMIT: Final = 128


class Refusals:
    """Notes of refused requests."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._limit = LogLimit(lines=LINES)

    def note_unknown(self, kind: Kind, name: str, caller: Caller, *, is_hidden: bool = False, **fields: Any) -> None:
        """Count a request for a name that does not exist, or is not visible to the caller (`is_hidden`), and log it."""
        self._counter.add(of=kind)
        self._note(
            logging.WARNING if is_hidden else logging.INFO,
            f"hidden {kind}" if is_hidden else f"unknown {kind}",
            caller,
            **{kind: name[:NAME_LIMIT]},
            **fields,
        )

    def note(self, caller: Caller, **fields: Any) -> None:
        """Log a request that is refused for its form."""
        self._note(logging.INFO, "request refused", caller, **fields)

    def _note(self, level: int, message: str, caller: Caller, **fields: Any) -> None:
        if count := self._limit.take(f"{message} {caller.id}"):
            requests = count if count > 1 else None
            event(_log, level, message, **fields, caller=caller.id, thread=caller.thread, requests=requests)
