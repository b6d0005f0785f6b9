"""A circuit breaker for each candidate: after failures in a row it is left alone for a while, then tried once.

closed     attempts pass; `limit` failures in a row open it
open       nothing passes for `pause_s`, or as long as the candidate asked for (429 with Retry-After) before `limit` failures
half-open  one attempt passes: its success closes the circuit, its failure opens it again

No I/O, and the clock is passed in: `steady_s` in a gateway, a number in a test. The state is that of this process alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

FAILURES: Final = 3
"""Failures in a row that open a circuit."""
PAUSE_S: Final = 60.0
"""How long an open circuit lets nothing through."""


class CircuitState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, kw_only=True)
class CircuitReport:
    """The state of a circuit at one moment."""

    state: CircuitState
    failures: int
    """In a row."""
    retry_s: float
    """How long until an attempt may pass; 0 unless the circuit is open."""


class Breaker:
    """The circuit of one candidate."""

    def __init__(self, clock: Callable[[], float], *, limit: int = FAILURES, pause_s: float = PAUSE_S) -> None:
        self._clock = clock
        self._limit = limit
        self._pause_s = pause_s
        self._failures = 0
        self._opens_at: float | None = None
        """When an attempt may pass again; None while the circuit is closed."""
        self._probe: CircuitPass | None = None
        """The one attempt of a half-open circuit, while it is under way."""

    @property
    def report(self) -> CircuitReport:
        """The state now."""
        if self._opens_at is None:
            return CircuitReport(state=CircuitState.CLOSED, failures=self._failures, retry_s=0.0)
        rest_s = self._opens_at - self._clock()
        state = CircuitState.OPEN if rest_s > 0 else CircuitState.HALF_OPEN
        return CircuitReport(state=state, failures=self._failures, retry_s=max(0.0, rest_s))

    @property
    def is_closed(self) -> bool:
        """Whether all attempts pass."""
        return self._opens_at is None

    @property
    def is_available(self) -> bool:
        """Whether `enter` would let an attempt pass."""
        state = self.report.state
        return state is CircuitState.CLOSED or (state is CircuitState.HALF_OPEN and self._probe is None)

    def enter(self) -> "CircuitPass | None":
        """Let an attempt pass, or return None; one of its methods must be called when it has ended."""
        if not self.is_available:
            return None
        attempt = CircuitPass(self)
        if self._opens_at is not None:
            # Half-open: until this one has ended, `is_available` is False for all others.
            self._probe = attempt
        return attempt

    def end(self, attempt: "CircuitPass", *, is_failure: bool, retry_s: float | None = None) -> None:
        """Take what an attempt says about the candidate; for `CircuitPass`."""
        is_probe = self._probe is attempt
        if is_probe:
            self._probe = None
        if not is_failure:
            # Of any attempt, also one that began before the circuit opened: the candidate answers again.
            self.reset()
            return
        self._failures += 1
        if self._failures >= self._limit:
            # However short a pause the candidate asks for: it fails again and again.
            self._opens_at = self._clock() + max(self._pause_s, retry_s or 0.0)
        elif retry_s is not None or is_probe:
            self._opens_at = self._clock() + (self._pause_s if retry_s is None else retry_s)

    def forget(self, attempt: "CircuitPass") -> None:
        """Forget an attempt that says nothing about the candidate; for `CircuitPass`."""
        # Not that of another one: an attempt may have begun before the circuit opened.
        if self._probe is attempt:
            self._probe = None

    def reset(self) -> None:
        """Close the circuit and forget all failures."""
        self._failures = 0
        self._opens_at = None
        self._probe = None


class CircuitPass:
    """An attempt that a circuit has let pass; of its methods, one is called once."""

    __slots__ = ("_breaker",)

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker

    def note_success(self) -> None:
        """Close the circuit."""
        self._breaker.end(self, is_failure=False)

    def note_failure(self, *, retry_s: float | None = None) -> None:
        """Count a failure; `retry_s` is how long the candidate itself wants to be left alone."""
        self._breaker.end(self, is_failure=True, retry_s=retry_s)

    def abandon(self) -> None:
        """Forget it: it was cancelled, and says nothing about the candidate."""
        self._breaker.forget(self)
