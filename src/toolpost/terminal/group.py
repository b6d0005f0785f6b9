"""Command groups that suggest the nearest name for an unknown command, and import a command when it is used."""

import copy
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn

import click
from click.shell_completion import CompletionItem

from toolpost.base.ids import TOOL_THREAD
from toolpost.base.nearest import nearest_name
from toolpost.contracts.errors import PluginFailed, ToolpostError
from toolpost.manifest import (
    BadManifest,
    Command,
    bundled_parts,
    describe,
    installed_commands,
    part_of_command,
    resolve,
)
from toolpost.terminal.exits import ExitCode
from toolpost.terminal.failures import show_failure, show_usage_error
from toolpost.terminal.renamed import find_new_name

_WORKER: Final = "AnyIO worker thread"

_IDLE_S: Final = 0.5
"""Idle threads end much faster."""


class NoSuchCommand(click.UsageError):
    def __init__(self, name: str, known: list[str], ctx: click.Context) -> None:
        super().__init__(f"unknown command `{name}`", ctx)
        near = nearest_name(name, known)
        meant = f"did you mean `{near}`? " if near else ""
        self.hint = f"{meant}`{ctx.command_path} --help` lists all of them"


class RenamedCommand(click.UsageError):
    def __init__(self, name: str, new: str, ctx: click.Context) -> None:
        super().__init__(f"unknown {'option' if name.startswith('-') else 'command'} `{name}`", ctx)
        self.hint = f"use `toolpost {new}`"


class SuggestingGroup(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            if (new := find_new_name([*_path_of(ctx), *args])) is not None:
                raise RenamedCommand(name, new, ctx)
            raise NoSuchCommand(name, known, ctx)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if (new := find_new_name([*_path_of(ctx), error.option_name])) is not None:
                raise RenamedCommand(error.option_name, new, ctx) from None
            raise


def _path_of(ctx: click.Context) -> list[str]:
    """Return the names of the commands down to this one, without `toolpost`."""
    return [] if ctx.parent is None else [*_path_of(ctx.parent), ctx.info_name or ""]


def outer_options(ctx: click.Context) -> Mapping[str, Any]:
    """Return the options that were given to the group, before the name of this command."""
    return ctx.parent.params if ctx.parent else {}


def commands_of_parts(group: str = "") -> dict[str, Command]:
    """Return the commands that bundled parts add to `toolpost`, or to a `group` of it, by name."""
    return _within(group, {name: command for part in bundled_parts() for name, command in part.commands.items()})


def _within(group: str, commands: Mapping[str, Command]) -> dict[str, Command]:
    """Return the commands of a group, by name: a part gives `auth sessions` for `sessions` in `auth`."""
    split = {key.rpartition(" "): command for key, command in commands.items()}
    return {name: command for (of, _, name), command in split.items() if of == group}


class LazyGroup(SuggestingGroup):
    """A group whose commands are a table, imported when they are used. Parts add theirs."""

    def __init__(self, *, commands: Mapping[str, Command], group: str = "", **options: Any) -> None:
        super().__init__(**options)
        self._known = commands
        self._group = group

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        return list(self._all())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        # Installed parts are looked for only where the core has no command of the name: that takes longer than all else.
        found = self._known.get(cmd_name) or self._all().get(cmd_name)
        if found is None:
            return None
        return _load(cmd_name, found)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.short_help) for name, command in self._all().items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names without importing them."""
        found = {name: command for name, command in self._all().items() if name.startswith(incomplete)}
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(name, help=command.short_help) for name, command in found.items()] + options

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, one of the core without looking for installed parts."""
        if args[0] in self._known:
            return args[0], self.get_command(ctx, args[0]), args[1:]
        return super().resolve_command(ctx, args)

    def _all(self) -> dict[str, Command]:
        """Return every command. A part cannot take the name of a command of the core."""
        installed = _within(self._group, installed_commands())
        return {**self._known, **{k: v for k, v in installed.items() if k not in self._known}}


def _load(name: str, command: Command) -> click.Command:
    """Import a command. One of an installed part that cannot be imported, or fails, is blamed on the part."""
    part = None if command.reference.startswith("toolpost.") else part_of_command(command)
    try:
        loaded = resolve(command.reference)
        if not isinstance(loaded, click.Command):
            raise BadManifest(f"`{command.reference}` is {describe(loaded)}, not a click command")
    except Exception as error:
        if part is None:
            raise
        raise _make_failure(name, part, "cannot be loaded", error) from error
    if part is None:
        return loaded
    guarded = copy.copy(loaded)
    guarded.invoke = partial(_invoke, name, part, loaded)  # type: ignore[method-assign]
    return guarded


def _invoke(name: str, part: str, command: click.Command, ctx: click.Context) -> Any:
    try:
        return command.invoke(ctx)
    except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
        raise
    except Exception as error:
        if isinstance(error, ToolpostError):
            raise
        raise _make_failure(name, part, "failed", error) from error


def _make_failure(name: str, part: str, what: str, error: Exception) -> PluginFailed:
    why = str(error) if isinstance(error, BadManifest) else f"{type(error).__name__}: {error}"
    return PluginFailed(f"the command `{name}` of the part `{part}` {what}: {why}")


class RootGroup(LazyGroup):
    """The `toolpost` command: turns exceptions into messages and exit codes."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the names of the commands by heading; a command without a heading is hidden."""
        names: dict[str, list[str]] = {}
        for name, command in self._all().items():
            if command.heading is not None:
                names.setdefault(command.heading, []).append(name)
        with formatter.section("Commands (`toolpost COMMAND --help` explains one)"):
            formatter.write_dl([(heading, "  ".join(found)) for heading, found in names.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except BrokenPipeError:
            silence_stdout()
            return ExitCode.OK
        except Exception as error:  # noqa: BLE001 (the last place that can show it)
            return show_failure(error, debug=ctx.params["debug"])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        run = partial(super().main, args, prog_name, complete_var, False, **extra)
        return exit_process(_run_to_exit_code(run)) if standalone_mode else run()


class ImporterGroup(LazyGroup):
    """`toolpost import`: a command that has commands of parts below it."""

    def _all(self) -> dict[str, Command]:
        bundled = {name: command for part in bundled_parts() for name, command in part.importers.items()}
        return installed_commands("importers") | bundled


def _run_to_exit_code(run: Callable[[], Any]) -> int:
    try:
        return int(run() or ExitCode.OK)
    except click.ClickException as error:
        return show_usage_error(error)
    except click.Abort:
        click.echo("toolpost: cancelled", err=True)
        return ExitCode.CANCELLED


def exit_process(code: int) -> NoReturn:
    """End the process even if a synchronous tool is stuck in its thread; its call has already been answered."""
    workers = [thread for thread in threading.enumerate() if thread.name.startswith((_WORKER, TOOL_THREAD))]
    for thread in workers:
        thread.join(_IDLE_S / len(workers))
    if stuck := [thread.name for thread in workers if thread.is_alive()]:
        # Other worker threads only prepare something, and nothing waits for them.
        tools = [name.removeprefix(TOOL_THREAD) for name in stuck if name.startswith(TOOL_THREAD)]
        if tools:
            click.echo(f"toolpost: exiting while tools still run in a thread: {', '.join(tools)}", err=True)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def silence_stdout() -> None:
    """Redirect stdout to the null device after a broken pipe, so that the interpreter's flush at exit cannot fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
