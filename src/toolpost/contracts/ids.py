"""Deprecated, and gone in 0.3.0: `from toolpost import CallerId, ThreadId, TurnId`."""

import warnings

from toolpost.base.ids import *  # noqa: F403

warnings.warn(
    "toolpost.contracts.ids is deprecated: write `from toolpost import CallerId, ThreadId, TurnId`",
    DeprecationWarning,
    stacklevel=2,
)
