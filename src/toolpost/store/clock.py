"""The time of leases and times to live: the same for all processes of a store, and without jumps.

A deadline outlives the process that stored it, and is compared with the time by another process. So it is an absolute time, and
all processes must agree on the time. But a wall clock jumps: NTP corrects it, a person sets it, a virtual machine is restored.
Then every lease would expire at once, or none for hours.

So the store's time is the wall clock (of this machine for SQLite, of the database for PostgreSQL) plus a correction in the
store. Each process advances it with a monotonic clock, and compares both every few seconds. If the wall clock differs from what
it should show by then, it has jumped, and the process changes the correction by as much in the other direction. Say it is 12:00,
and the clock is set to 15:00: the correction becomes minus three hours, for this process and for every one that reads it later,
and a lease until 12:05 expires five minutes from now.

A correction is valid while the machine of the clock runs (its *epoch*: the boot of the machine, the start of the database). A
jump while no process was running cannot be told from time that passed.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from toolpost.base.clocks import steady_s

CHECK_S: Final = 5.0
"""How long a process uses its monotonic clock alone."""

TOLERANCE_S: Final = 1.0
"""A smaller difference is no jump: NTP slows and speeds up clocks a little all the time."""


class Correction(NamedTuple):
    """The row of the table `store_clock`."""

    epoch: str
    seconds: float


class ClockReading(NamedTuple):
    """The wall clock and the stored correction, read between two times of the monotonic clock."""

    began_s: float
    ended_s: float
    wall: float
    epoch: str
    """The current one; `stored` may be of an earlier one."""
    stored: Correction


class StoreClock:
    """The clock of one process, without I/O: the store makes readings, and writes the correction that `adjust` returns."""

    def __init__(self, steady: Callable[[], float] = steady_s) -> None:
        self._steady = steady
        self._ahead_s = time.time() - steady()
        """Store time minus monotonic time."""
        self._looked_s = float("-inf")
        self._stored: Correction | None = None
        self._written: Correction | None = None
        self._correction_s = 0.0
        self._last = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time for the next reading."""
        return self._steady() > self._looked_s + CHECK_S

    def now(self) -> float:
        """Return the store's time, in seconds since 1970; it never goes back."""
        self._last = max(self._last, self._steady() + self._ahead_s)
        return self._last

    def wall(self, at: float) -> float:
        """Convert a time of the store to the wall clock, for people and other programs."""
        return at - self._correction_s

    def adjust(self, reading: ClockReading) -> Correction | None:
        """Adjust to a reading; return the correction to store instead of `reading.stored`, if the wall clock has jumped.

        Another process may store one first, or writing it may fail: the next reading shows which one is valid.
        """
        correction_s = reading.stored.seconds if reading.stored.epoch == reading.epoch else 0.0
        wall_s = reading.wall + correction_s
        # The wall clock was read between the two: a process that was paused in the middle has seen no jump.
        expected = min(max(wall_s, reading.began_s + self._ahead_s), reading.ended_s + self._ahead_s)
        is_first, self._looked_s = self._stored is None, reading.ended_s
        # A correction of another process is accepted as it is: two that disagree would correct each other forever.
        is_changed = reading.stored not in (self._stored, self._written)
        self._stored = reading.stored
        if is_first or is_changed or abs(wall_s - expected) <= TOLERANCE_S:
            self._ahead_s, self._correction_s = wall_s - reading.ended_s, correction_s
            return None
        self._correction_s = correction_s + expected - wall_s
        self._written = Correction(reading.epoch, self._correction_s)
        return self._written
