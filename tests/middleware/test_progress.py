"""The rate of progress notifications, by a clock that the test moves."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from toolpost.base.ids import CallId, ToolName
from toolpost.middleware.progress import ProgressNotification, ProgressShaper

pytestmark = pytest.mark.anyio


class Timer:
    """A call that is due later."""

    def __init__(self, due: float, run: Callable[[], None]) -> None:
        self.due, self.run, self.is_cancelled = due, run, False

    def cancel(self) -> None:
        self.is_cancelled = True


class Clock:
    """The part of an event loop that a shaper uses, with a time of its own."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()

    def time(self) -> float:
        return self.now

    def is_closed(self) -> bool:
        return False

    def call_later(self, delay_s: float, run: Callable[[], None]) -> Timer:
        timer = Timer(self.now + delay_s, run)
        heapq.heappush(self._timers, (timer.due, next(self._order), timer))
        return timer

    def move_to(self, at: float) -> None:
        while self._timers and self._timers[0][0] <= at:
            due, _, timer = heapq.heappop(self._timers)
            self.now = max(self.now, due)
            if not timer.is_cancelled:
                timer.run()
        self.now = at


@pytest.mark.parametrize("ends_after_s", [0.3, 0.999, 1.0, 1.001, 1.5, 2.2, 3.0])
async def test_no_second_has_more_than_four_notifications(ends_after_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, sent = Clock(), []

    def emit(note: ProgressNotification) -> None:
        sent.append((clock.now, note.progress))

    monkeypatch.setattr(asyncio, "get_running_loop", lambda: clock)
    shaper = ProgressShaper(emit, call_id=CallId("c"), tool=ToolName("t"))
    monkeypatch.undo()
    began = clock.now
    count = int(ends_after_s / 0.005)
    for number in range(count):
        clock.move_to(began + number * 0.005)
        shaper.report(number + 1, count, None, stream="info", phase="progress")
    clock.move_to(began + ends_after_s)
    shaper.close(deliver=True)
    clock.move_to(began + 60)

    times = [at for at, _ in sent]
    within: list[Any] = [[other for other in times if at <= other < at + 1.0] for at in times]
    assert max(map(len, within)) <= 4
    # A flood uses what it may: three in its first second.
    assert len([at for at in times if at < began + min(1.0, ends_after_s)]) >= 3
    values = [value for _, value in sent]
    assert values == sorted(set(values))
    assert times[-1] <= began + ends_after_s
    assert values[-1] == count
