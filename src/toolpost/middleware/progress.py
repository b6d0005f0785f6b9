"""Progress notifications: at most four a second, strictly rising, the last one delivered, none after the answer.

In any second at most three notifications are sent while the tool runs, and one right before the answer. Three in a row go out
at once, so that the 0, 50 and 100 % of a short call all arrive; a flood is thinned to three a second.

A pipe needs more care. Clients made with the TypeScript SDK forget a progress token when they *read* the answer, and report a
notification that they read together with it as an error. On a pipe the answer therefore follows the last notification by
`READ_S` at least (`answer_delay_s`).
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
"""The fourth notification of a second is reserved for the last one before the answer."""

READ_S = 0.02
"""How long before the answer a client on a pipe must have the last notification, so that it reads the two apart."""

MESSAGE_LIMIT = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressNotification:
    """The content of one `notifications/progress`."""

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
    """Takes every report of one call, and emits those that a client can use."""

    def __init__(self, emit: Callable[[ProgressNotification], None], *, call_id: CallId, tool: ToolName) -> None:
        self._emit = emit
        self._id = call_id
        self._tool = tool
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waiting: _Report | ReadProgress | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sent_at: deque[float] = deque(maxlen=MOST_IN_WINDOW)
        self._last_sent_at = -math.inf
        self._last = -math.inf
        self._has_values = False
        self._is_closed = False

    def report(
        self, progress: float | None, total: float | None, message: str | None, *, stream: str, phase: str
    ) -> None:
        """Take a report, from any thread. It replaces one that has not been sent yet."""
        note = _Report(progress, total, message, stream, phase)
        if threading.get_ident() == self._thread:
            self._take(note)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, note)

    def relay(self, read: ReadProgress) -> None:
        """Take a report that is decoded only if it is sent; call it on the event loop."""
        self._take(read)

    def redirect(self, emit: Callable[[ProgressNotification], None] | None) -> None:
        """Emit to another receiver from now on, or to none: in a call of several rounds each request has its own."""
        self._emit = emit or _discard

    def close(self, *, deliver: bool) -> None:
        """Emit nothing after this. A report that waits is sent now, unless `deliver` is false."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deliver and self._waiting is not None and not self._is_closed:
            self._send(self._waiting)
        self._waiting = None
        self._is_closed = True

    @property
    def answer_delay_s(self) -> float:
        """Seconds until an answer on a pipe may follow the last notification; 0 or less: at once."""
        return self._last_sent_at + READ_S - self._loop.time()

    def _take(self, report: _Report | ReadProgress) -> None:
        if self._is_closed:
            return
        self._waiting = report
        if self._timer is None:
            # Until the third last notification is a second old.
            delay_s = self._sent_at[0] + WINDOW_S - self._loop.time() if len(self._sent_at) >= MOST_IN_WINDOW else 0.0
            if delay_s <= 0:
                self._flush()
            else:
                self._timer = self._loop.call_later(delay_s, self._flush)

    def _flush(self) -> None:
        self._timer = None
        if self._waiting is not None and not self._is_closed:
            report, self._waiting = self._waiting, None
            self._sent_at.append(self._loop.time())
            self._send(report)

    def _send(self, waiting: _Report | ReadProgress) -> None:
        report = waiting if isinstance(waiting, _Report) else _read_relayed(waiting)
        if report is None:
            return
        self._last = self._next_value(report.progress)
        self._last_sent_at = self._loop.time()
        self._emit(
            ProgressNotification(
                progress=self._last,
                total=report.total if report.total is not None and report.total >= self._last else None,
                message=_clean_message(report.message),
                facts={
                    "id": self._id,
                    "tool": self._tool,
                    "stream": report.stream,
                    "phase": report.phase,
                    "ts": datetime.now(UTC).isoformat(timespec="milliseconds"),
                },
            )
        )

    def _next_value(self, value: float | None) -> float:
        """Make the value strictly larger than the last one that was sent, as the protocol demands."""
        if value is not None and math.isfinite(value):
            self._has_values = True
            return value if value > self._last else math.nextafter(self._last, math.inf)
        if self._has_values:
            return math.nextafter(self._last, math.inf)
        return max(self._last, 0) + 1


def _read_relayed(read: ReadProgress) -> _Report | None:
    found = read()
    return None if found is None else _Report(*found, "info", "progress")


def _discard(_note: ProgressNotification) -> None:
    return None


def _clean_message(message: str | None) -> str | None:
    """Truncate a message, and replace what UTF-8 cannot encode."""
    if message is None:
        return None
    if len(message) > MESSAGE_LIMIT:
        message = f"{message[:MESSAGE_LIMIT]}…"
    return message.encode("utf-8", "replace").decode()
