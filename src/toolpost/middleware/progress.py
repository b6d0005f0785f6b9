"""Progress, shaped: few, rising, the last one delivered, none after the end.

In any second at most three notifications are sent while the tool runs, and the last one right before the answer: four at most.
Three in a row go out at once, so that a short call's 0, 50 and 100 % all arrive; a flood is thinned to three a second.

A pipe needs more care. Clients made with the TypeScript SDK forget a token when they *read* the answer, and report a
notification that they read together with it as an error. There a report waits `HOLD_S` before it is sent, and one that still
waits when the call ends is dropped.
"""

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from toolpost.authoring.context import ReadProgress
from toolpost.base.ids import CallId, JsonObject, ToolName

WINDOW_S = 1.0
MOST_IN_WINDOW = 3
"""The fourth that a second may have is kept for the last one before the answer."""

HOLD_S = 0.02

MESSAGE_LIMIT = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressNote:
    """What a client is told."""

    progress: float
    total: float | None
    message: str | None
    facts: JsonObject
    """`{id, tool, stream, phase, ts}`, for our key in `_meta`."""


@dataclass(slots=True)
class _Report:
    progress: float | None
    total: float | None
    message: str | None
    stream: str
    phase: str


class ProgressShaper:
    """Takes every report of one call and passes on what a client can use."""

    def __init__(
        self, emit: Callable[[ProgressNote], None], *, call_id: CallId, tool: ToolName, holds: bool = False
    ) -> None:
        """`holds` is for pipes: nothing is sent right before the answer."""
        self._emit = emit
        self._holds = holds
        self._id = call_id
        self._tool = tool
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waiting: _Report | ReadProgress | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sent_at: deque[float] = deque(maxlen=MOST_IN_WINDOW)
        self._last = -math.inf
        self._has_values = False
        self._is_closed = False

    def report(
        self, progress: float | None, total: float | None, message: str | None, *, stream: str, phase: str
    ) -> None:
        """Take a report from any thread; a newer one replaces one that still waits."""
        note = _Report(progress, total, message, stream, phase)
        if threading.get_ident() == self._thread:
            self._take(note)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, note)

    def relay(self, read: ReadProgress) -> None:
        """Take a report that is read only if it is sent on; called on the loop."""
        self._take(read)

    def redirect(self, emit: Callable[[ProgressNote], None] | None) -> None:
        """Tell somebody else from now on, or nobody: a call of several rounds is heard in the one that is on."""
        self._emit = emit or _unheard

    def close(self, *, deliver: bool) -> None:
        """End it: what still waits is sent now, or dropped if nobody wants it or the answer would come right behind it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deliver and not self._holds and self._waiting is not None and not self._is_closed:
            self._send(self._waiting)
        self._waiting = None
        self._is_closed = True

    def _take(self, report: _Report | ReadProgress) -> None:
        if self._is_closed:
            return
        self._waiting = report
        if self._timer is None:
            delay_s = max(self._wait_s(), HOLD_S if self._holds else 0.0)
            if delay_s <= 0:
                self._flush()
            else:
                self._timer = self._loop.call_later(delay_s, self._flush)

    def _wait_s(self) -> float:
        """Return how long it is until a second has passed since the third last notification."""
        if len(self._sent_at) < MOST_IN_WINDOW:
            return 0.0
        return self._sent_at[0] + WINDOW_S - self._loop.time()

    def _flush(self) -> None:
        self._timer = None
        if self._waiting is not None and not self._is_closed:
            report, self._waiting = self._waiting, None
            self._sent_at.append(self._loop.time())
            self._send(report)

    def _send(self, waiting: _Report | ReadProgress) -> None:
        report = waiting if isinstance(waiting, _Report) else _relayed(waiting)
        if report is None:
            return
        self._last = self._risen(report.progress)
        self._emit(
            ProgressNote(
                progress=self._last,
                total=report.total if report.total is not None and report.total >= self._last else None,
                message=_shown(report.message),
                facts={
                    "id": self._id,
                    "tool": self._tool,
                    "stream": report.stream,
                    "phase": report.phase,
                    "ts": datetime.now(UTC).isoformat(timespec="milliseconds"),
                },
            )
        )

    def _risen(self, value: float | None) -> float:
        """Make the value strictly larger than the last one that was sent, as the protocol demands."""
        if value is not None and math.isfinite(value):
            self._has_values = True
            return value if value > self._last else math.nextafter(self._last, math.inf)
        if self._has_values:
            return math.nextafter(self._last, math.inf)
        return max(self._last, 0) + 1


def _relayed(read: ReadProgress) -> _Report | None:
    found = read()
    return None if found is None else _Report(*found, "info", "progress")


def _unheard(_note: ProgressNote) -> None:
    return None


def _shown(message: str | None) -> str | None:
    """Bound a message, and make it text that JSON can carry."""
    if message is None:
        return None
    if len(message) > MESSAGE_LIMIT:
        message = f"{message[:MESSAGE_LIMIT]}…"
    return message.encode("utf-8", "replace").decode()
