"""Generates docs/reference/cli.md: `python -m toolpost.cli.reference > docs/reference/cli.md`."""

from collections.abc import Iterator

import click

from toolpost.cli.main import main
from toolpost.terminal.exits import ExitCode

_OPENING = """\
# The command line

<!-- Made by `python -m toolpost.cli.reference > docs/reference/cli.md`; a test compares the two. -->

Results go to stdout, all other output (progress, warnings, errors, logs) to stderr. `--json` prints results for other programs.
Color is for terminals only. In text from servers, tools, files or callers, characters that control a terminal or are invisible
(escape sequences, C1 controls, bidirectional and invisible characters) are written as `\\uXXXX`, with the same meaning
in `--json`.

An error states the fact and the next step:

```text
error: unknown tool `serch`
hint: did you mean `search`? `toolpost tools` lists all of them
```

## Exit codes

| code | meaning |
|---|---|
"""

_BETWEEN = """
After `toolpost call`, the answer's error code decides: `TOOL_TIMEOUT` is 124, `CANCELLED` 130 (124 after `--timeout`), and
the others follow from the branch of the [error code](errors.md).

## Environment

| variable | meaning |
|---|---|
| `TOOLPOST_TOKEN` | the token that HTTP clients must send; `servers`, `chat` and `--url` send it. Overrides `http.token` |
| `TOOLPOST_CREDENTIALS_KEY` | encrypts stored credentials: one key, or several after each other. Overrides `credentials.key` |
| `TOOLPOST_DEBUG` | `1` is `--debug`: tracebacks, and every log event |
| `NO_COLOR` | no color, not on terminals either |

## Commands
"""


def render_page() -> str:
    codes = "".join(f"| {code.value} | {code.meaning} |\n" for code in ExitCode)
    sections = "".join(
        f"\n### `{context.command_path}`\n\n```text\n{context.get_help()}\n```\n" for context in walk_commands()
    )
    return f"{_OPENING}{codes}{_BETWEEN}{sections}"


def walk_commands(command: click.Command = main, parent: click.Context | None = None) -> Iterator[click.Context]:
    """Yield a context of every command, depth first, to render its help with."""
    name = command.name if parent else "toolpost"
    settings = {**command.context_settings, "terminal_width": 100}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    yield context
    if isinstance(command, click.Group):
        for inner_name in command.list_commands(context):
            inner = command.get_command(context, inner_name)
            assert inner is not None
            yield from walk_commands(inner, context)


if __name__ == "__main__":
    click.echo(render_page(), nl=False)
