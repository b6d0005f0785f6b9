"""The `toolpost` command line. A command's module is imported when it runs.

The stub lists what commands of parts share with ours: to serve, to open a gateway, and to call a tool in this process.

main                    the `toolpost` command: a table of lazily imported sub-commands, by heading
serve, plugin_reload    `serve`, and its `--reload`
new, config, store, completion  commands of one module
call/, tools/, servers/, login/, logs/, doctor/, auth/, audit/  commands of several modules
contracts/              `lock`, `check` and `diff`
clients/                `import` and `install`
open_app_problems       what commands tell of a gateway inside this process: its tools, and what failed
local_gateway           a gateway that a command opens and serves over HTTP
plugin_server           a plugin served alone
reference               docs/reference/cli.md

Options, tables and failures are in `toolpost.terminal`, and so are the names that commands once had. The commands
of parts are in `toolpost.parts.*.commands`.
"""

from toolpost.base.lazy_names import lazy_names
from toolpost.cli.main import main as main  # the entry point of the command `toolpost`; parts have no use for it

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
