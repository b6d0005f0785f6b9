"""The reference page of the command line: `python -m toolpost.cli.reference > docs/reference/cli.md`."""

from collections.abc import Iterator

import click

from toolpost.cli.exits import ExitCode
from toolpost.cli.main import main

_OPENING = """\
# The command line

<!-- Made by `python -m toolpost.cli.reference > docs/reference/cli.md`; a test compares the two. -->

Answers go to stdout, everything else (progress, warnings, errors, logs) to stderr. `--json` gives answers for other programs.
Colour is for terminals only. In words that servers, tools, files or callers wrote, characters that steer a terminal or hide in it
(escape sequences, C1 controls, bidirectional and invisible characters) are written as `\\uXXXX`, in `--json` too,
which means the same.

An error says what happened and what to do next:

```text
error: no tool is called `serch`
hint: did you mean `search`? `toolpost tools` lists all of them
```

## Exit codes

| code | meaning |
|---|---|
"""

_BETWEEN = """
After `toolpost call`, the answer's error code decides: `TOOL_TIMEOUT` is 124, `CANCELLED` 130 (124 if `--timeout` did it), and
the others follow who can put it right, as [the error codes](errors.md) say.

## Environment

| variable | meaning |
|---|---|
| `TOOLPOST_TOKEN` | the token that HTTP clients must show, as `servers`, `chat` and `--url` do; wins over `http.token_file` |
| `TOOLPOST_DEBUG` | `1` is `--debug`: tracebacks, and every log event |
| `NO_COLOR` | no colour, on terminals neither |

## Commands
"""


def page() -> str:
    """Write the page."""
    codes = "".join(f"| {code.value} | {code.meaning} |\n" for code in ExitCode)
    sections = "".join(_section(context) for context in commands())
    return f"{_OPENING}{codes}{_BETWEEN}{sections}"


def commands(command: click.Command = main, parent: click.Context | None = None) -> Iterator[click.Context]:
    """Walk all commands, each as a context to ask for its help in."""
    name = command.name if parent else "toolpost"
    settings = {**command.context_settings, "terminal_width": 100}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    yield context
    if isinstance(command, click.Group):
        for inner_name in command.list_commands(context):
            inner = command.get_command(context, inner_name)
            assert inner is not None
            yield from commands(inner, context)


def _section(context: click.Context) -> str:
    return f"\n### `{context.command_path}`\n\n```text\n{context.get_help()}\n```\n"


if __name__ == "__main__":
    click.echo(page(), nl=False)
