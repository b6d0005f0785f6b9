"""Where tools come from: plugin functions and servers. `loading` brings plugins, `hosting` keeps servers."""

from toolpost.sources.functions import FunctionSource
from toolpost.sources.held import HeldTool, Source, ToolReturn

__all__ = ["FunctionSource", "HeldTool", "Source", "ToolReturn"]
