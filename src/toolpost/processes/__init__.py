"""Starts processes and ends them with all that they started. Others import `tree`, `lines`, `limits` and `memory` alone."""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
