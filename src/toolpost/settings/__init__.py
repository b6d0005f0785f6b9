"""The settings of `toolpost.toml`: read once, frozen. An unknown key is an error that suggests the nearest one.

model         every setting of the kernel and its default
section       the section of a part
callers       `[callers.NAME]` and `[http.oauth]`: who may call over HTTP, and what they see
servers       `[servers.NAME]`, as written and resolved
loader        `toolpost.toml`, or a client's file, as a `Config`
lock          reading the lock file
locations     where state is kept without a `toolpost.toml`
variables     `${VAR}` and similar references
marks         what a setting says about itself: that it is secret, read late, or for few
removed       settings that are gone, and what replaced them
network       certificates and proxies of outgoing connections
credentials   where the key is that encrypts stored credentials
secrets       finds secrets in a server's settings, and rewrites them
masking       removes a server's secrets from text that it prints
client_files  the servers in the files of other MCP clients, and Toolpost itself among them
jsonc         JSON with comments: reads it, and changes one member of it
"""

from toolpost.settings.callers import CallerSettings, IssuerSettings, OAuthSettings
from toolpost.settings.client_files import ClientServers, FoundServer, read_client_file
from toolpost.settings.effects import changed_keys, make_idle
from toolpost.settings.loader import config_schema, convert_settings, load_config
from toolpost.settings.marks import ADVANCED, LATE, SECRET
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
from toolpost.settings.variables import depends_on_user, read_secret

__all__ = [
    "ADVANCED",
    "CONFIG_NAME",
    "LATE",
    "SECRET",
    "CallerSettings",
    "ClientServers",
    "Config",
    "DiscoverySettings",
    "FoundServer",
    "HttpSettings",
    "IssuerSettings",
    "LimitSettings",
    "OAuthSettings",
    "PluginSettings",
    "RerankerSettings",
    "ResolvedServer",
    "ServerSettings",
    "StdioSettings",
    "StoreSettings",
    "changed_keys",
    "config_schema",
    "convert_settings",
    "depends_on_user",
    "load_config",
    "make_idle",
    "parse_address",
    "read_client_file",
    "read_secret",
]
