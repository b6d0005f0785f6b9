"""Where tools come from: plugin functions and servers. `loading` brings plugins, `hosting` keeps servers."""

from toolpost.providers.functions import FunctionProvider
from toolpost.providers.tool import ProvidedTool, Provider, ToolReturn

__all__ = ["FunctionProvider", "ProvidedTool", "Provider", "ToolReturn"]
