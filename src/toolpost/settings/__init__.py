"""What a person may set: read once, frozen. An unknown key in our own file is an error that names the nearest one.

model         every setting of the kernel and its default
section       a section that a part brings
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

from toolpost.settings.callers import CallerSettings, OAuthSettings
from toolpost.settings.client_files import ClientServers, FoundServer, read_client_file
from toolpost.settings.loader import config_schema, convert_settings, load_config
from toolpost.settings.model import (
    CONFIG_NAME,
    Config,
    DiscoverySettings,
    HttpSettings,
    LimitSettings,
    PluginSettings,
    RerankerSettings,
    StdioSettings,
    StoreSettings,
    parse_address,
)
from toolpost.settings.servers import ResolvedServer, ServerSettings

__all__ = [
    "CONFIG_NAME",
    "CallerSettings",
    "ClientServers",
    "Config",
    "DiscoverySettings",
    "FoundServer",
    "HttpSettings",
    "LimitSettings",
    "OAuthSettings",
    "PluginSettings",
    "RerankerSettings",
    "ResolvedServer",
    "ServerSettings",
    "StdioSettings",
    "StoreSettings",
    "config_schema",
    "convert_settings",
    "load_config",
    "parse_address",
    "read_client_file",
]
