"""The work that one pair of definitions may take."""


class Budget:
    """Work to spend, in seconds of a slow machine as they are estimated beforehand: a verdict never depends on the clock.

    Once it is spent, or something was left out to save it, the answer is cut short.
    """

    def __init__(self, budget_s: float) -> None:
        self._left_s = budget_s
        self.is_cut_short = False

    def has(self, cost_s: float) -> bool:
        """Spend on what may be left out without harm; False if it no longer fits in."""
        is_left = cost_s <= self._left_s
        self._left_s -= cost_s if is_left else 0.0
        return is_left

    def allows(self, cost_s: float) -> bool:
        """Spend on a step, or remember that it did not fit in."""
        is_allowed = self.has(cost_s)
        self.is_cut_short |= not is_allowed
        return is_allowed
