"""`toolpost auth token`: make the token of a caller."""

import os
import re
import secrets
from pathlib import Path

import click

from toolpost.contracts.errors import InvalidRequest
from toolpost.settings.callers import CallerSettings, check_caller
from toolpost.terminal import ExitCode, examples


@click.command(
    epilog=examples(
        ("toolpost auth token ada", "print it, and the lines to add"),
        ("toolpost auth token ada --file ada.token", "write it to a new file instead"),
        ("toolpost auth token --file token", "the token for all clients"),
    )
)
@click.argument("name", required=False)
@click.option(
    "--file", "path", metavar="FILE", type=click.Path(path_type=Path), help="Write the token to this new file (0600)."
)
def token(name: str | None, path: Path | None) -> ExitCode:
    """Make a token for a caller, and show the lines for toolpost.toml.

    The token goes to stdout, or with --file to a file that only you can read; the lines go to stderr. Nothing else is changed.
    Without NAME it is the token of the gateway itself, for all clients.
    """
    if name is None:
        table, variable = "http", "TOOLPOST_TOKEN"
    else:
        variable = f"TOOLPOST_TOKEN_{re.sub(r'[^A-Z0-9]', '_', name.upper())}"
        check_caller(name, CallerSettings(token=f"${{{variable}}}"))
        table = f"callers.{name if re.fullmatch(r'[A-Za-z0-9_-]+', name) else _quote(name)}"
    made = secrets.token_urlsafe(32)
    setting = None if name is None else f'token = "${{{variable}}}"'
    if path is None:
        click.echo(made)
    else:
        _write_new(path, made)
        setting = f"token = {_quote(f'${{file:{path}}}')}"
    if setting is not None:
        click.echo(f"\nadd to toolpost.toml:\n\n[{table}]\n{setting}", err=True)
    if path is None:
        click.echo(f"\nset {variable} to the token where `toolpost serve` starts", err=True)
    click.echo("clients send it as `Authorization: Bearer TOKEN`", err=True)
    return ExitCode.OK


def _write_new(path: Path, text: str) -> None:
    try:
        # O_EXCL: a token that is in use is never overwritten.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise InvalidRequest(
            f"Cannot write {path}: {error.strerror or error}.", hint="name a file that does not exist yet"
        ) from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{text}\n")


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
