"""The settings of `toolpost.toml`: read once, frozen. An unknown key is an error that suggests the nearest one.

model         every setting of the kernel and its default
section       the section of a part
callers       `[callers.NAME]` and `[http.oauth]`: who may call over HTTP, and what they see
servers       `[servers.NAME]`, as written and resolved
loader        `toolpost.toml`, or a client's file, as a `Config`
audit         `[audit]`: how much of the record is kept; `[export.NAME]`: where it is passed on to
lock          reading the lock file
mistakes      explains values of a wrong type
effects       settings that have no effect, because another one is missing
locations     where state is kept without a `toolpost.toml`
variables     `${VAR}` and similar references
marks         what a setting says about itself: that it is secret, read late, or for few
removed       settings that are gone, and what replaced them
network       certificates and proxies of outgoing connections
key_place     where the key is that encrypts stored credentials
secrets       finds secrets in a server's settings, and rewrites them
masking       removes a server's secrets from text that it prints
client_files  the servers in the files of other MCP clients, and Toolpost itself among them
jsonc         JSON with comments: reads it, and changes one member of it
"""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
