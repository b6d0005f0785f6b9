"""What every layer may import: ids, callers, clocks, log events, redaction, JSON values. Nothing here knows MCP."""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
