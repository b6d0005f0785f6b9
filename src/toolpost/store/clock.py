"""The time by which leases and times to live are written and judged: the same for all who share a store, and without jumps.

A deadline outlives the process that wrote it, and is judged by the process that looks next: so it is a moment of the day, and
all must agree on what time it is. But a wall clock jumps: NTP corrects it, a person sets it, a virtual machine is restored. Then
every lease would have run out at once, or none for hours.

So the store's time is the wall clock's (of this machine for SQLite, of the database for PostgreSQL) plus a correction that the
store keeps. Each process counts on by a steady clock, and looks at both every few seconds. If the wall clock is not where it
should be by then, it has jumped, and the process moves the correction by as much the other way. Say it is 12:00, and the
clock is set to 15:00: the correction becomes minus three hours, here and for every process that looks later, and a lease until
12:05 runs out five minutes from now.

A correction holds for as long as what has the clock is up (its *epoch*: the boot of the machine, the start of the database).
What happened while no process was there to see it cannot be told from time that passed.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from toolpost.base.clocks import steady_s

LOOK_S: Final = 5.0
"""How long a process counts on by itself."""

TOLERANCE_S: Final = 1.0
"""How far the wall clock may be from where it should be: clocks are slowed and hastened a little all the time."""


class Correction(NamedTuple):
    """What the store keeps: a row of `store_clock`."""

    epoch: str
    seconds: float


class Look(NamedTuple):
    """What was seen: between two moments of the steady clock, the wall clock and what the store keeps."""

    began_s: float
    ended_s: float
    wall: float
    epoch: str
    """The one that holds now."""
    kept: Correction


class StoreClock:
    """The clock of one process. Knows no database: the store looks, and writes what `take` returns."""

    def __init__(self, steady: Callable[[], float] = steady_s) -> None:
        self._steady = steady
        self._ahead_s = time.time() - steady()
        """Store time less steady time."""
        self._looked_s = float("-inf")
        self._kept: Correction | None = None
        self._written: Correction | None = None
        self._correction_s = 0.0
        self._last = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time to look again."""
        return self._steady() > self._looked_s + LOOK_S

    def now(self) -> float:
        """Return the store's time, in seconds since 1970; it never goes back."""
        self._last = max(self._last, self._steady() + self._ahead_s)
        return self._last

    def wall(self, at: float) -> float:
        """Return what the wall clock shows at a moment of the store's time, for people and other programs."""
        return at - self._correction_s

    def take(self, look: Look) -> Correction | None:
        """Take note of what was seen; returns the correction to be kept instead of `look.kept`, if the wall clock has jumped.

        It may be written or not, and by another process first: until this is seen at the next look, this process counts on.
        """
        correction_s = look.kept.seconds if look.kept.epoch == look.epoch else 0.0
        said = look.wall + correction_s
        # It was read at some moment between the two: a process that was held up in the middle has seen no jump.
        expected = min(max(said, look.began_s + self._ahead_s), look.ended_s + self._ahead_s)
        is_first, self._looked_s = self._kept is None, look.ended_s
        # What another process has corrected is not judged again: two that disagree would go on for ever.
        is_news = look.kept not in (self._kept, self._written)
        self._kept = look.kept
        if is_first or is_news or abs(said - expected) <= TOLERANCE_S:
            self._ahead_s, self._correction_s = said - look.ended_s, correction_s
            return None
        self._correction_s = correction_s + expected - said
        self._written = Correction(look.epoch, self._correction_s)
        return self._written
