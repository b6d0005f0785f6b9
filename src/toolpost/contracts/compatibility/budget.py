"""The time that one pair of definitions may take."""

import time


class Budget:
    """Seconds to spend. Once they are spent, or something was left out to save them, the answer is cut short."""

    def __init__(self, budget_s: float) -> None:
        self._ends = time.monotonic() + budget_s
        self.is_cut_short = False

    @property
    def left_s(self) -> float:
        """What is left of it."""
        return self._ends - time.monotonic()

    def allows(self, cost_s: float) -> bool:
        """Say whether a step that cannot be interrupted fits in, and remember if it did not."""
        is_allowed = cost_s <= self.left_s
        self.is_cut_short |= not is_allowed
        return is_allowed

    def is_spent(self) -> bool:
        """Say whether it is over, and remember that it mattered."""
        return not self.allows(0.0)
