"""The material of commands: options, tables, failures, exit codes, the client of a running gateway."""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
