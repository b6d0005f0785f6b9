"""What a failure looks like: `error:` says what happened, `hint:` what to do next, both on stderr."""

import json
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import click

from toolpost.base.redaction import conceal_known
from toolpost.cli.exits import ExitCode, exit_code_for
from toolpost.cli.terminal import printable, styled
from toolpost.contracts.errors import SourceError, ToolpostError


def tell(label: str, text: str, *, colour: str) -> None:
    """Write `label: text` on stderr, in colour where there is any."""
    click.echo(f"{styled(f'{printable(label)}:', colour, bold=True)} {conceal_known(printable(text))}", err=True)


def warn(text: str) -> None:
    """Write a warning on stderr."""
    tell("warning", as_clause(text), colour="yellow")


def show_error(message: str, hint: str | None = None, *, issues: Sequence[Mapping[str, Any]] = ()) -> None:
    """Say what happened, each thing that is wrong, and what to do next."""
    tell("error", _without_issues(message, issues), colour="red")
    for issue in issues:
        _show_issue(issue)
    if hint:
        tell("hint", hint, colour="cyan")


def show_failure(error: Exception, *, debug: bool) -> ExitCode:
    """Show what a command failed with, and return what to end with."""
    error = _root(error)
    if debug:
        click.echo(conceal_known(printable("".join(traceback.format_exception(error)))), err=True)
    if isinstance(error, ToolpostError):
        own_words = isinstance(error, SourceError)
        show_error(
            error.message if own_words else as_clause(error.message), error.hint, issues=issues_in(error.details)
        )
        return exit_code_for(error)
    show_error(
        f"something went wrong inside Toolpost: {type(error).__name__}: {error}",
        None if debug else "TOOLPOST_DEBUG=1 shows where; please report it",
    )
    return ExitCode.INTERNAL


def show_usage_error(error: click.ClickException) -> ExitCode:
    """Show what is wrong with a command line."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return ExitCode.USAGE
    message, nearest = error.format_message(), None
    if isinstance(error, click.NoSuchOption):
        message, nearest = f"there is no option `{error.option_name}`", error.possibilities
    context = error.ctx if isinstance(error, click.UsageError) else None
    more = f"`{context.command_path} --help` says more" if context else "`toolpost --help` says more"
    hint = getattr(error, "hint", None) or more
    show_error(as_clause(message), f"did you mean `{nearest[0]}`? {more}" if nearest else hint)
    return ExitCode.USAGE


def issues_in(details: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the issues among an error's details."""
    issues = details.get("issues", ())
    return [issue for issue in issues if isinstance(issue, Mapping)] if isinstance(issues, Sequence) else []


def _without_issues(message: str, issues: Sequence[Mapping[str, Any]]) -> str:
    """Take the issues out of a message that ends with the first of them: each is shown on a line of its own."""
    fact, _, told = message.partition(": ")
    first = str(issues[0].get("message") or "") if issues else ""
    return fact if first and told.startswith(first) else message


def _show_issue(issue: Mapping[str, Any]) -> None:
    path = issue.get("path") or "(root)"
    click.echo(printable(f"  {path}: {issue.get('message', '')}"), err=True)
    for name in ("expected", "received", "suggestion"):
        if name in issue:
            value = issue[name]
            shown = value if name == "suggestion" else json.dumps(value, ensure_ascii=False, default=str)
            click.echo(printable(f"    {name}: {_short(str(shown))}"), err=True)


def _short(text: str, limit: int = 300) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def as_clause(message: str) -> str:
    """Write a sentence as it follows `error:`, without its capital and its full stop."""
    first, _, rest = message.partition(" ")
    clause = f"{first.lower()} {rest}" if first.isalpha() and first.istitle() and rest else message
    return clause.removesuffix(".") if not clause.endswith("..") else clause


def _root(error: Exception) -> Exception:
    """Take a lone error out of the group that a task group put it in."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
