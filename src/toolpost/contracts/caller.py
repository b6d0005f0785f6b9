"""Deprecated, and gone in 0.3.0: `from toolpost import Caller, Principal`."""

import warnings

from toolpost.base.caller import *  # noqa: F403
from toolpost.base.caller import Principal as Standing  # noqa: F401 (its former name)

warnings.warn(
    "toolpost.contracts.caller is deprecated: write `from toolpost import Caller, Principal`",
    DeprecationWarning,
    stacklevel=2,
)
