"""`toolpost auth set`, `list` and `remove`.

Values are read from a prompt, a file or stdin, never from the command line, which others can see.
"""

import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

import click

from toolpost.base import nearest_name
from toolpost.cli.servers.command import complete_server_names
from toolpost.contracts.errors import BadConfiguration, NotFound
from toolpost.credentials.grant import NAME as LOGIN_KEY
from toolpost.credentials.login_flow import is_pending_login
from toolpost.credentials.values import CallerValue
from toolpost.credentials.vault import CredentialInfo, Vault
from toolpost.settings import Config
from toolpost.settings.callers import RESERVED
from toolpost.settings.key_place import key_place_of
from toolpost.settings.section import credential_users
from toolpost.settings.variables import split_own_values
from toolpost.store import open_store, store_exists
from toolpost.terminal import (
    config_option,
    examples,
    json_option,
    load_cli_config,
    print_json_line,
    print_table,
    printable,
    run_async,
    table,
)
from toolpost.terminal.failures import suggest, warn

_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_LONGEST: Final = 64 * 1024
_UNNAMED: Final = "(no name)"

_caller_option = click.option(
    "--caller",
    "owner",
    metavar="NAME",
    default="",
    help="Whose it is: a name of [callers] (default: callers without a name, on stdio, the command line and localhost).",
)


@click.command(
    name="set",
    epilog=examples(
        ("toolpost auth set github TOKEN", "asks for the value"),
        ("toolpost auth set github TOKEN --caller ann", "for one caller"),
        ("pass show github | toolpost auth set github TOKEN", "from another program"),
    ),
)
@click.argument("server", shell_complete=complete_server_names)
@click.argument("key")
@_caller_option
@click.option(
    "--file",
    "file",
    type=click.File("rb"),
    help="File with the value, - for stdin; a line break at its end is left out.",
)
@config_option
@json_option("Print `{server, caller, key}` on one line.")
def set_value(
    server: str, key: str, owner: str, file: BinaryIO | None, config_path: Path | None, *, as_json: bool
) -> None:
    """Set a credential that a server is used with.

    It is for one caller, or for callers without a name. Settings refer to it as ${caller:KEY}, in `headers` and `env` of a
    server. The value comes from a prompt, from --file, or from stdin if that is not a terminal.
    """
    config = load_cli_config(config_path)
    users = credential_users(config)
    if server not in users:
        hint = suggest(server, sorted(users), f"configured: {', '.join(sorted(users)) or 'none'}")
        raise NotFound(f"Unknown server `{server}`.", hint=hint)
    check_owner(config, owner)
    if not _KEY.fullmatch(key):
        raise click.BadParameter(
            "a key has letters, digits, `_`, `.` and `-`, and starts with a letter", param_hint="KEY"
        )
    if key == LOGIN_KEY:
        # It would replace the tokens of a login.
        raise click.BadParameter(f"`{key}` is where logins are kept: choose another name", param_hint="KEY")
    value = _read_value(file, f"{key} of {server}{f' for {owner}' if owner else ''}")
    user = users[server]
    known = {piece.name for text in user.texts for piece in split_own_values(text) if isinstance(piece, CallerValue)}
    if key not in known:
        near = nearest_name(key, sorted(known))
        meant = f"; did you mean {near}?" if near else ""
        warn(f"no setting of {user.section}.{server} refers to ${{caller:{key}}} yet{meant}")

    async def put() -> None:
        async with open_vault(config) as vault:
            await vault.put(server, owner, key, value)

    run_async(put)
    if as_json:
        print_json_line({"server": server, "caller": owner or None, "key": key})
        return
    click.echo(f"{printable(key)} of {printable(server)} is set for {printable(_show_owner(owner))}.", err=True)


@click.command(
    name="list",
    epilog=examples(
        ("toolpost auth list", "without values"),
        ("toolpost auth list --json | jq '.credentials[].server'", "for other programs"),
    ),
)
@config_option
@json_option("Print `{credentials: [{server, caller, key, changedAt, isReadable}], keyPlace}` on one line.")
def list_values(config_path: Path | None, *, as_json: bool) -> None:
    """List the credentials that are set, without values."""
    config = load_cli_config(config_path)
    found = run_async(_list, config)
    if as_json:
        listed = [
            {
                "server": one.server,
                "caller": one.owner or None,
                "key": one.name,
                "changedAt": f"{datetime.fromtimestamp(one.changed_at, UTC):%Y-%m-%dT%H:%M:%SZ}",
                "isReadable": one.is_readable,
            }
            for one in found
        ]
        print_json_line({"credentials": listed, "keyPlace": key_place_of(config).shown})
        return
    rows = [
        (
            one.server,
            one.owner or _UNNAMED,
            one.name,
            datetime.fromtimestamp(one.changed_at, UTC).strftime("%Y-%m-%d %H:%M"),
            "" if one.is_readable else "cannot be decrypted",
        )
        for one in found
    ]
    if not rows:
        click.echo("Nothing is set.", err=True)
        return
    print_table(table("server", "caller", "key", "changed", "", rows=rows))


@click.command(
    epilog=examples(
        ("toolpost auth remove github TOKEN", "one value"),
        ("toolpost auth remove github --caller ann", "all of one caller, and the login"),
    )
)
@click.argument("server")
@click.argument("key", required=False)
@_caller_option
@config_option
@json_option("Print `{server, caller, removed}` on one line: how many values there were.")
def remove(server: str, key: str | None, owner: str, config_path: Path | None, *, as_json: bool) -> None:
    """Remove a credential, or all of a caller for a server.

    Without KEY, everything is removed that the caller has for the server. A running gateway stops what uses it, after the
    calls in flight.
    """
    removed = run_async(_remove, load_cli_config(config_path), server, owner, key)
    if not removed:
        what = f"{key} of {server}" if key else server
        raise NotFound(f"Nothing is set for {what} and {_show_owner(owner)}.", hint="`toolpost auth list` lists them")
    if as_json:
        print_json_line({"server": server, "caller": owner or None, "removed": removed})
        return
    number = "one value" if removed == 1 else f"{removed} values"
    click.echo(f"Removed {number} of {printable(server)}, for {printable(_show_owner(owner))}.", err=True)


def _read_value(file: BinaryIO | None, what: str) -> bytes:
    if file is None and sys.stdin.isatty():
        value: bytes = click.prompt(what, hide_input=True, err=True).encode()
    else:
        value = (file or sys.stdin.buffer).read(_LONGEST + 1)
        value = value.removesuffix(b"\n").removesuffix(b"\r")
    if not value:
        raise click.UsageError("the value is empty")
    if len(value) > _LONGEST:
        raise click.UsageError(f"the value is longer than {_LONGEST} bytes")
    return value


def check_owner(config: Config, owner: str) -> None:
    """Refuse a caller that cannot exist. One that an authorization server names has its subject after a colon."""
    name = owner.partition(":")[0]
    if owner == "" or name in config.callers or (name == "oauth" and owner != name):
        return
    if name in RESERVED:
        raise BadConfiguration(
            f"`{owner}` is not the name of one caller.", hint="without --caller, it is set for callers without a name"
        )
    names = sorted(config.callers)
    hint = suggest(name, names, f"configured: {', '.join(names) or 'none'}")
    raise NotFound(f"Unknown caller `{owner}`.", hint=hint)


def _show_owner(owner: str) -> str:
    return f"the caller {owner}" if owner else "callers without a name"


@asynccontextmanager
async def open_vault(config: Config) -> AsyncIterator[Vault]:
    async with open_store(config.store_url, pool=1, retry_s=5.0) as store:
        yield Vault(store, key_place_of(config))


async def _list(config: Config) -> list[CredentialInfo]:
    # Opening a store would create one.
    if not await store_exists(config.store_url):
        return []
    async with open_vault(config) as vault:
        return [info for info in await vault.list() if not is_pending_login(info.name)]


async def _remove(config: Config, server: str, owner: str, key: str | None) -> int:
    if not await store_exists(config.store_url):
        return 0
    async with open_vault(config) as vault:
        return await vault.remove(server, owner, key)
