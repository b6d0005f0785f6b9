"""Where tools come from: plugin functions and servers. `loading` brings plugins, `hosting` keeps servers."""

from toolpost.providers.functions import FunctionSource
from toolpost.providers.tool import HeldTool, Source, ToolReturn

__all__ = ["FunctionSource", "HeldTool", "Source", "ToolReturn"]
