"""Where tools come from: the functions of plugins, and servers.

functions, plugin_host   the functions of a plugin; plugins loaded, started and stopped
servers, server_host     the tools of a server; all servers of a gateway, also when the configuration changes
promises, quarantine     tools compared with their lock or pin, and kept from callers if they changed
findings                 definitions scanned for text that may be meant for the model
relay, input_required    resources, prompts and completions of servers; results that ask for input
tool, tool_names         what all providers have in common; names for the tools of servers

How servers are reached is left to `upstreams`, what every call passes to `middleware`.
"""

from toolpost.providers.functions import FunctionProvider
from toolpost.providers.tool import ProvidedTool, Provider, ToolReturn

__all__ = ["FunctionProvider", "ProvidedTool", "Provider", "ToolReturn"]
