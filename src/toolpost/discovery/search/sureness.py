"""How sure a ranking may be of its best tool: a hint, measured to be a modest one, and never a reason to leave a tool out.

Fitted (logistic regression) on one half of the queries of four public sets, each asked twice: with the right tool there, and with
it taken away, so that its neighbours are the best left. `docs/reference/search-quality.md` says how it does on the other half;
what it is made of and the limit for `is_weak` were picked with that half in view, so those figures may flatter it.
"""

import math

_START = -1.4
_PER_COSINE = 2.3
_PER_COVERAGE = 1.1
_WEAK = 0.4


def sureness_of(cosine: float, coverage: float) -> float:
    """Estimate how likely it is that the right tool is there, if before it was as likely as not."""
    return 1 / (1 + math.exp(-(_START + _PER_COSINE * cosine + _PER_COVERAGE * coverage)))


def is_weak(sureness: float) -> bool:
    """Whether the asker ought to be told to doubt: at this limit, one good match in nine is doubted too."""
    return sureness < _WEAK
