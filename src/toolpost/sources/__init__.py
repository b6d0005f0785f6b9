"""Where tools come from: plugin functions today, upstream servers beside them later."""

from toolpost.sources.functions import FunctionSource
from toolpost.sources.held import HeldTool, Source, ToolReturn

__all__ = ["FunctionSource", "HeldTool", "Source", "ToolReturn"]
