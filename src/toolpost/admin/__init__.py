"""Questions and actions of an operator, as plain values: for the console, commands and parts.

servers       the state of servers; start, stop and restart
api           `/api/servers`
monitor       the health of a gateway, and its metrics
action_items  what waits for the operator
contracts     tools that are not as promised; accepts their changes
disks         the disks that are nearly full
lock_file     the lock as it is read and written, and the tools as they would be written to it
config_file   a change of `toolpost.toml`: planned, shown without secrets, tried out, written
toml_file     a TOML file of a person, to which entries are added
toml_text     edits of TOML as text
shown_toml    the text of `toolpost.toml` without secrets
conversion    a client's server as `[servers.NAME]`
specs         the servers of a configuration, as the gateway opens them
files         backups, and atomic replacements of files that belong to others

`__init__.pyi` lists the public names, looked up when they are first used.
"""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
