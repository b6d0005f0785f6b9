"""What a person may set: read once, frozen. An unknown key in our own file is an error that names the nearest one.

settings      every setting of `toolpost.toml` and its default
agents        `[agents.NAME]` and `[harness]`: who answers in conversations
callers       `[callers.NAME]` and `[http.oauth]`: who may call, and what they see
servers       `[servers.NAME]`, and what becomes of it once its variables are filled in
variables     `${VAR}` and its relatives
secrets       what must not be shown, and how it is written instead
concealing    a server's own words without its secrets
loading       `toolpost.toml`, or a client's file, as a `Config`
places        where state is kept without a `toolpost.toml`
client_files  the servers that other MCP clients keep in their files
client_entry  one of those servers, read into our settings
env_files     files of `NAME=value` lines, which those may name
own_entry     which of those servers is Toolpost itself
jsonc         JSON with comments, read with line numbers
json_edit     one member of such a file set or removed, without losing a byte of the rest
"""

from toolpost.settings.agents import AgentSettings, HarnessSettings, ResolvedAgent
from toolpost.settings.callers import CallerSettings, OAuthSettings
from toolpost.settings.client_files import ClientServers, FoundServer, read_client_file
from toolpost.settings.loader import config_schema, load_config
from toolpost.settings.model import (
    CONFIG_NAME,
    BusSettings,
    Config,
    DiscoverySettings,
    HttpSettings,
    LimitSettings,
    PluginSettings,
    RerankerSettings,
    StdioSettings,
    StoreSettings,
    WorkspaceSettings,
    parse_address,
)
from toolpost.settings.servers import ResolvedServer, ServerSettings

__all__ = [
    "CONFIG_NAME",
    "AgentSettings",
    "BusSettings",
    "CallerSettings",
    "ClientServers",
    "Config",
    "DiscoverySettings",
    "FoundServer",
    "HarnessSettings",
    "HttpSettings",
    "LimitSettings",
    "OAuthSettings",
    "PluginSettings",
    "RerankerSettings",
    "ResolvedAgent",
    "ResolvedServer",
    "ServerSettings",
    "StdioSettings",
    "StoreSettings",
    "WorkspaceSettings",
    "config_schema",
    "load_config",
    "parse_address",
    "read_client_file",
]
