"""A circuit breaker for each candidate: after failures in a row it is left alone for a while, then tried once.

closed     attempts pass; `limit` failures in a row open it
open       nothing passes for `pause_s`, or as long as the candidate asked for (429 with Retry-After)
half-open  one attempt passes: its success closes the circuit, its failure opens it again

No I/O, and the clock is passed in: `steady_s` in a gateway, a number in a test. The state is that of this process alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


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

    def __init__(self, clock: Callable[[], float], *, limit: int = 3, pause_s: float = 60.0) -> None:
        self._clock = clock
        self._limit = limit
        self._pause_s = pause_s
        self._failures = 0
        self._opens_at: float | None = None
        """When an attempt may pass again; None while the circuit is closed."""
        self._is_probing = False
        """Whether the one attempt of a half-open circuit is under way."""

    @property
    def report(self) -> CircuitReport:
        """The state now."""
        if self._opens_at is None:
            return CircuitReport(state=CircuitState.CLOSED, failures=self._failures, retry_s=0.0)
        rest_s = self._opens_at - self._clock()
        state = CircuitState.OPEN if rest_s > 0 else CircuitState.HALF_OPEN
        return CircuitReport(state=state, failures=self._failures, retry_s=max(0.0, rest_s))

    @property
    def is_available(self) -> bool:
        """Whether `enter` would let an attempt pass."""
        state = self.report.state
        return state is CircuitState.CLOSED or (state is CircuitState.HALF_OPEN and not self._is_probing)

    def enter(self) -> bool:
        """Let an attempt pass, or return False; `note_success`, `note_failure` or `abandon` must follow one that passed."""
        if not self.is_available:
            return False
        self._is_probing = self._opens_at is not None
        return True

    def note_success(self) -> None:
        """Close the circuit."""
        self.reset()

    def note_failure(self, *, retry_s: float | None = None) -> None:
        """Count a failure; `retry_s` is how long the candidate itself wants to be left alone."""
        self._failures += 1
        if retry_s is not None:
            self._opens_at = self._clock() + retry_s
        elif self._failures >= self._limit or self._is_probing:
            self._opens_at = self._clock() + self._pause_s
        self._is_probing = False

    def abandon(self) -> None:
        """Forget an attempt that was cancelled: it says nothing about the candidate."""
        self._is_probing = False

    def reset(self) -> None:
        """Close the circuit and forget all failures."""
        self._failures = 0
        self._opens_at = None
        self._is_probing = False
