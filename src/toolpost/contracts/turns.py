"""Deprecated, and gone in 0.3.0: `from toolpost import TurnEnded`."""

import warnings

from toolpost.base.turns import *  # noqa: F403

warnings.warn(
    "toolpost.contracts.turns is deprecated: write `from toolpost import TurnEnded`", DeprecationWarning, stacklevel=2
)
