"""Groups of commands that name the nearest one for a miss, and load a command when it is asked for."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import click
from click.shell_completion import CompletionItem

from toolpost.base.nearest import nearest_name
from toolpost.cli.exits import ExitCode
from toolpost.cli.failures import show_failure, show_usage_error
from toolpost.cli.process_exit import leave, leave_reader_alone


class NoSuchCommand(click.UsageError):
    """No command has this name."""

    def __init__(self, name: str, known: list[str], ctx: click.Context) -> None:
        super().__init__(f"there is no command `{name}`", ctx)
        near = nearest_name(name, known)
        meant = f"did you mean `{near}`? " if near else ""
        self.hint = f"{meant}`{ctx.command_path} --help` lists all of them"


class SuggestingGroup(click.Group):
    """A group that knows what was probably meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one comes nearest."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            raise NoSuchCommand(name, known, ctx)
        return super().resolve_command(ctx, args)


@dataclass(frozen=True)
class Late:
    """A command that has not been loaded: where it is, and its line in the list."""

    reference: str
    short_help: str


class RootGroup(SuggestingGroup):
    """The command itself: loads its sub-commands late, and turns whatever goes wrong into words and an exit code."""

    def __init__(self, *, late: Mapping[str, Late], **options: Any) -> None:
        super().__init__(**options)
        self.late = late

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Name the commands, in the order of the table."""
        return list(self.late)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load one command."""
        if cmd_name not in self.late:
            return None
        module, _, attribute = self.late[cmd_name].reference.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, late.short_help) for name, late in self.late.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands without loading them."""
        names = {name: late for name, late in self.late.items() if name.startswith(incomplete)}
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(name, help=late.short_help) for name, late in names.items()] + options

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except BrokenPipeError:
            leave_reader_alone()
            return ExitCode.OK
        except Exception as error:  # noqa: BLE001 (the last place that can say it in words)
            return show_failure(error, debug=ctx.params["debug"])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command and end the process."""
        run = partial(super().main, args, prog_name, complete_var, False, **extra)
        return leave(_ended(run)) if standalone_mode else run()


def _ended(run: Callable[[], Any]) -> int:
    try:
        return int(run() or ExitCode.OK)
    except click.ClickException as error:
        return show_usage_error(error)
    except click.Abort:
        click.echo("toolpost: cancelled", err=True)
        return ExitCode.CANCELLED
