"""The `toolpost` command line. Only what `--help` needs is imported at once; a command's module is imported when it runs.

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

from toolpost.cli.main import main

__all__ = ["main"]
