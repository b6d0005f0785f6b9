"""Where tools come from: the functions of plugins, and servers.

plugins                  all plugins of a gateway: loaded, started, replaced, stopped
plugin_candidates        those that are not loaded yet; `references` finds what a name leads to
loaded_plugin            the state of one; `plugin_maker` makes its tools, `plugin_hooks` calls its hooks
functions                the functions of a plugin, as tools
configured_middleware    middleware that no plugin brings
servers, supervisors     all servers of a gateway, also when the configuration changes; what runs them
server_provider          the tools of a server; `server_context` is what all of them share
learning                 tools remembered from an earlier start, or learned by starting a server
schema_limits            the limits of their schemas, remembered in the store
caller_providers         the providers of a server whose callers have credentials of their own
credential_changes       servers that get other credentials, or a login
watched                  servers and plugins whose tools are compared
contract_watch           tools compared with their lock or pin; `pinned_names` are the pins in memory
quarantine               changed tools, kept from callers
findings                 definitions scanned for text that may be meant for the model
plugin_contents          resources, prompts and completions of a plugin
relay, requester         resources, prompts and completions of all plugins and servers; who requests them
resource_owners          which server a resource is of
extensions               extensions of all servers, and which of them a method is for
unknown_name             the error for a resource, prompt, skill, method or server that is unknown or hidden
skills                   the skills of a server, compared with their lock or pin
input_required           results of servers that ask for input
client_meta              the part of a client's `_meta` that a server receives
app_pages                the HTML of MCP Apps on its way to a host
tool                     the common interface of providers

The transport to servers is left to `upstreams`, the steps of a call to `middleware`.
"""

from toolpost.providers.functions import FunctionProvider
from toolpost.providers.tool import ProvidedTool, Provider, RawResult

__all__ = ["FunctionProvider", "ProvidedTool", "Provider", "RawResult"]
