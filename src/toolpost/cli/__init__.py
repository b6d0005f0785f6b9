"""The `toolpost` command line. A command's module is imported when it runs.

The stub lists what commands of parts share with ours: to serve, and to call a tool in this process.

main                    the `toolpost` command: a table of lazily imported sub-commands, by heading
serve, plugin_reload    `serve`, and its `--reload`
new, config, store, completion
                        commands of one module
audit/ auth/ call/ clients/ doctor/ lock/ login/ logs/ servers/ tools/
                        commands of several modules; clients/ has `import` and `install`
quiet_app               the gateway inside this process, for one command
reference               docs/reference/cli.md

Options, tables and failures are in `toolpost.terminal`, and so are the names that commands once had. The commands
of parts are in `toolpost.parts.*.commands`.
"""

from toolpost.base.lazy_names import lazy_names
from toolpost.cli.main import main as main  # at once: it has the name of its module

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
