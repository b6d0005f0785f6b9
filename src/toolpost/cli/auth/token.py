"""`toolpost auth token`: make the token of a caller."""

import os
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

import click

from toolpost.app.callers import check_stored_caller
from toolpost.base.caller import UNLIMITED
from toolpost.contracts.errors import InvalidRequest
from toolpost.endpoints.auth.roster import CallerTable, KnownCaller, Roster
from toolpost.endpoints.auth.stored_callers import StoredCallers
from toolpost.settings import Config
from toolpost.settings.callers import CallerSettings, Mode, check_caller
from toolpost.store import open_store
from toolpost.terminal import ExitCode, config_option, examples, load_cli_config, printable, run_async


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
@click.option(
    "--store", "in_store", is_flag=True, help="Make the caller in the store, instead of lines for toolpost.toml."
)
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="With --store: see only servers with this tag.")
@click.option(
    "--tool", "tools", metavar="PATTERN", multiple=True, help="With --store: see only tools that match, `!…` excludes."
)
@click.option(
    "--mode",
    type=click.Choice(get_args(Mode)),
    default="full",
    show_default=True,
    help="With --store: what it may call.",
)
@click.option(
    "--revoke", "revokes", is_flag=True, help="Remove a caller of the store: its token is refused from now on."
)
@config_option
def token(
    name: str | None,
    path: Path | None,
    tags: tuple[str, ...],
    tools: tuple[str, ...],
    mode: str,
    config_path: Path | None,
    *,
    in_store: bool,
    revokes: bool,
) -> ExitCode:
    """Make a token for a caller, and show the lines for toolpost.toml.

    The token goes to stdout, or with --file to a file that only you can read; the lines go to stderr. Nothing else is changed.
    Without NAME it is the token of the gateway itself, for all clients. With --store, the gateways of the store accept the token
    at once, until it is revoked, and only its hash is stored.
    """
    if (in_store or revokes) and name is None:
        raise click.UsageError("--store and --revoke need a NAME")
    if (tags or tools or mode != "full") and not in_store:
        raise click.UsageError("--tag, --tool and --mode are for --store")
    if revokes and (in_store or path is not None):
        raise click.UsageError("--revoke is for itself")
    if name is not None and revokes:
        run_async(_remove, load_cli_config(config_path), name)
        click.echo(f"The token of {printable(name)} is revoked.", err=True)
        return ExitCode.OK
    if name is not None and in_store:
        made = run_async(_add, load_cli_config(config_path), name, tags or None, tools or None, mode)
        if path is None:
            click.echo(made)
        else:
            _write_new(path, made)
        click.echo("clients send it as `Authorization: Bearer TOKEN`", err=True)
        return ExitCode.OK
    return _show_lines(name, path)


def _show_lines(name: str | None, path: Path | None) -> ExitCode:
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


async def _add(
    config: Config, name: str, tags: tuple[str, ...] | None, tools: tuple[str, ...] | None, mode: str
) -> str:
    async with _open_callers(config) as callers:
        return await callers.add(name, tags=tags, tools=tools, mode=mode, made_by="cli")


async def _remove(config: Config, name: str) -> None:
    async with _open_callers(config) as callers:
        await callers.remove(name, by="cli")


@asynccontextmanager
async def _open_callers(config: Config) -> AsyncIterator[StoredCallers]:
    # By their names alone: their tokens may be known to the process of the gateway only.
    known = tuple(KnownCaller(name=name) for name in ("token", *config.callers))
    async with open_store(config.store_url, pool=1, retry_s=5.0) as store:
        yield StoredCallers(
            store,
            Roster(CallerTable(callers=known)),
            check=check_stored_caller,
            mode_scope=lambda _: UNLIMITED,
            login=None,
            on_change=lambda: None,
        )


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
