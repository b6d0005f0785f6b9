"""The `toolpost` command line. Only what `--help` needs is imported at once; a command's module is imported when it runs.

main, group      the `toolpost` command: a table of lazily imported sub-commands
exits, failures  exit codes, and errors on stderr
options          options that commands share, and the configuration they modify
gateway          the gateway inside this process, for one command
show, terminal   tables and JSON on stdout, and what is safe to print

call/ clients/ doctor/ lock/ login/ logs/ servers/   commands with several modules; clients/ has import, install and uninstall
serve, tools, search, audit, credentials, config, store, completion   commands with one

The commands of parts are in `toolpost.parts.*.commands`.
"""

from toolpost.cli.main import main

__all__ = ["main"]
