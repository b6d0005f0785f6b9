"""`toolpost bus`: the group of commands, and the board without one."""

import sys
from pathlib import Path

import click

from toolpost.parts.bus.commands.board import show_live, show_once
from toolpost.parts.bus.commands.connect import connect
from toolpost.parts.bus.commands.serve import serve
from toolpost.parts.bus.commands.server import project_option, resolve_project, status, stop
from toolpost.parts.bus.commands.tasks import cancel, reset, retry, submit, tasks
from toolpost.terminal import SuggestingGroup, examples, json_option, run_async


@click.group(
    cls=SuggestingGroup,
    invoke_without_command=True,
    epilog=examples(
        ("toolpost bus", "workers, queue and leases, until Ctrl-C"),
        ("toolpost bus --json | jq .counts", "the current counts, for other programs"),
        ("toolpost bus submit bd-42", "hand a task to a free worker"),
        ("toolpost bus connect", "what an agent's MCP configuration starts"),
    ),
)
@project_option
@click.option("--once", is_flag=True, help="Print the board once, and end.")
@json_option("Print `{workers, queue, counts, oldest_seconds, troubled}` on one line, and end.")
@click.pass_context
def bus(context: click.Context, project: Path | None, *, once: bool, as_json: bool) -> None:
    """Hand tasks to agents, and follow their progress.

    Without a command: the board of the project's bus, live on a terminal.
    """
    if context.invoked_subcommand is not None:
        return
    if sys.stdout.isatty() and not once and not as_json:
        run_async(show_live, resolve_project(project))
    else:
        run_async(lambda: show_once(resolve_project(project), as_json=as_json))


for _command in (serve, connect, status, stop, submit, retry, cancel, reset, tasks):
    bus.add_command(_command)
