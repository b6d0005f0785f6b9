"""How sure a ranking may be of its best tool."""

import math

_WEAK = 0.5


def sureness_of(coverage: float, cosine: float) -> float:
    """Estimate how likely it is that a tool that fits is among the best."""
    return 1 / (1 + math.exp(-8 * (0.5 * coverage + 0.5 * cosine - 0.4)))


def is_weak(sureness: float) -> bool:
    """Whether the caller ought to be told to doubt."""
    return sureness < _WEAK
