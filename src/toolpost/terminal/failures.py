"""Errors and warnings on stderr: `error:` states the fact, `hint:` the next step."""

import json
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from toolpost.base import conceal_known, nearest_name
from toolpost.contracts.errors import SourceError, ToolpostError
from toolpost.terminal.exits import ExitCode, exit_code_of_error
from toolpost.terminal.text import printable, style_stderr


def tell(label: str, text: str, *, color: str) -> None:
    """Write `label: text` to stderr, with known secrets concealed."""
    click.echo(f"{style_stderr(f'{printable(label)}:', color, bold=True)} {conceal_known(printable(text))}", err=True)


def warn(text: str) -> None:
    tell("warning", as_clause(text), color="yellow")


def show_note(text: str) -> None:
    """Write what a person has to know or do, and is no mistake, to stderr."""
    tell("note", text, color="cyan")


def show_error(message: str, hint: str | None = None, *, issues: Sequence[Mapping[str, Any]] = ()) -> None:
    """Write an error, its issues one by one, and a hint to stderr."""
    tell("error", _drop_issues(message, issues), color="red")
    for issue in issues:
        _show_issue(issue)
    if hint:
        tell("hint", hint, color="cyan")


def is_debugging() -> bool:
    """Whether the command was started with `--debug`."""
    context = click.get_current_context(silent=True)
    return bool(context and context.find_root().params.get("debug"))


def show_failure(error: Exception, *, debug: bool | None = None) -> ExitCode:
    """Show the exception that ended a command and return the exit code; with its traceback for `debug`, else for `--debug`."""
    debug = is_debugging() if debug is None else debug
    # Task groups raise an only error as a group.
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if debug:
        click.echo(conceal_known(printable("".join(traceback.format_exception(error)))), err=True)
    if isinstance(error, ToolpostError):
        # What a tool reports is shown in its own words.
        is_from_tool = isinstance(error, SourceError)
        show_error(
            error.message if is_from_tool else as_clause(error.message), error.hint, issues=issues_in(error.details)
        )
        return exit_code_of_error(error)
    show_error(
        f"internal error in Toolpost: {type(error).__name__}: {error}",
        None if debug else "please report it, with the traceback that TOOLPOST_DEBUG=1 shows",
    )
    return ExitCode.INTERNAL


def show_usage_error(error: click.ClickException) -> ExitCode:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return ExitCode.USAGE
    message, nearest = error.format_message(), None
    if isinstance(error, click.NoSuchOption):
        message, nearest = f"unknown option `{error.option_name}`", error.possibilities
    context = error.ctx if isinstance(error, click.UsageError) else None
    more = f"see `{context.command_path} --help`" if context else "see `toolpost --help`"
    hint = getattr(error, "hint", None) or more
    show_error(as_clause(message), f"did you mean `{nearest[0]}`? {more}" if nearest else hint)
    return ExitCode.USAGE


def issues_in(details: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    issues = details.get("issues", ())
    return [issue for issue in issues if isinstance(issue, Mapping)] if isinstance(issues, Sequence) else []


def _drop_issues(message: str, issues: Sequence[Mapping[str, Any]]) -> str:
    """Cut the first issue off the end of a message, as each issue is shown on a line of its own."""
    fact, _, rest = message.partition(": ")
    first = str(issues[0].get("message") or "") if issues else ""
    return fact if first and rest.startswith(first) else message


def _show_issue(issue: Mapping[str, Any]) -> None:
    path = issue.get("path") or "(root)"
    click.echo(printable(f"  {path}: {issue.get('message', '')}"), err=True)
    for name in ("expected", "received", "suggestion"):
        if name in issue:
            value = issue[name]
            shown = value if name == "suggestion" else json.dumps(value, ensure_ascii=False, default=str)
            text = str(shown)
            click.echo(printable(f"    {name}: {text if len(text) <= 300 else f'{text[:300]}…'}"), err=True)


def suggest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return a hint at the name that was probably meant, or another hint if none is near."""
    near = nearest_name(name, known)
    return f"did you mean `{near}`?" if near else otherwise


def as_clause(message: str) -> str:
    """Turn a sentence into the text after `error:`: no capital, no full stop."""
    first, _, rest = message.partition(" ")
    clause = f"{first.lower()} {rest}" if first.isalpha() and first.istitle() and rest else message
    return clause.removesuffix(".") if not clause.endswith("..") else clause
