"""How long each step of the latest calls took. In memory: the audit has the duration of every call, and nothing of its steps."""

from itertools import pairwise
from struct import Struct
from typing import Final

from toolpost.base import Json, JsonObject
from toolpost.middleware import Call

KEPT: Final = 2_000
"""Calls whose steps are kept."""

_RECORD: Final = Struct("=48s?d5q")
"""The id of a call, whether its tool is a server's, when it began in seconds of the monotonic clock, and the times of its steps.
"""
_SIZE: Final = _RECORD.size
_pack: Final = _RECORD.pack_into


class CallTimings:
    """The steps of the latest calls of this process.

    A ring of bytes, in which nothing is kept alive: thousands of small objects that live a little longer than their calls would
    scatter the memory that all other calls use, which costs them more than what is done here.
    """

    def __init__(self) -> None:
        self._ring = bytearray(KEPT * _SIZE)
        self._at = 0

    def note(self, call: Call) -> None:
        """Keep when a call reached its steps; its audit entry is written."""
        at = self._at
        _pack(
            self._ring,
            at,
            call.id.encode(),
            call.tool.is_remote,
            call.started,
            call.queued_ns,
            call.locked_ns,
            call.checked_ns,
            call.answered_ns,
            call.recorded_ns,
        )
        at += _SIZE
        self._at = at if at < KEPT * _SIZE else 0

    def find(self, call_id: str) -> Json:
        """Return the steps of a call, in their order, as JSON; None if they are not kept, or no longer."""
        wanted = call_id.encode().ljust(48, b"\0")
        for name, is_remote, started_s, *steps_ns in _RECORD.iter_unpack(self._ring):
            if name == wanted:
                return _describe(is_remote=is_remote, started=int(started_s * 1e9), steps_ns=steps_ns)
        return None


def _describe(*, is_remote: bool, started: int, steps_ns: list[int]) -> list[JsonObject]:
    queued, locked, checked, answered, recorded = steps_ns
    reached = [("admission", started)]
    if queued:
        reached.append(("queue", queued))
    if locked:
        reached.append(("validation", locked))
    elif checked:
        # On the fast path nothing comes before validation.
        reached = [("validation", started)]
    if checked:
        reached.append(("server" if is_remote else "function", checked))
    reached += [("audit", answered), ("", recorded)]
    return [
        {"step": step, "startMs": (began - started) / 1e6, "durationMs": max(0, ended - began) / 1e6}
        for (step, began), (_, ended) in pairwise(reached)
    ]
