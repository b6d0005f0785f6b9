"""`toolpost passphrase`, and `toolpost logins`: which clients are logged in, and an end to it."""

from pathlib import Path

import click

from toolpost.base.ids import JsonObject
from toolpost.base.passphrase import hash_passphrase
from toolpost.contracts.errors import NotFound
from toolpost.parts.authorization_server import PART
from toolpost.parts.authorization_server.api import render_login
from toolpost.parts.authorization_server.records import Which, list_logins, revoke_all
from toolpost.parts.authorization_server.server import TOPIC
from toolpost.settings import Config
from toolpost.store import store_exists
from toolpost.store.part_migrations import open_part_store
from toolpost.terminal.event_loop import run_async
from toolpost.terminal.examples import examples
from toolpost.terminal.group import SuggestingGroup
from toolpost.terminal.options import config_option, json_option, load_cli_config
from toolpost.terminal.tables import print_json_line, print_table, table


@click.command(
    epilog=examples(
        ("toolpost passphrase", "asks for it twice, and prints the hash"),
        ("toolpost passphrase --file passphrase.txt", "the first line of a file"),
    )
)
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Read the passphrase from the first line of this file, instead of asking for it.",
)
def passphrase(path: Path | None) -> None:
    """Hash a passphrase, for `passphrase_hash` in [callers.NAME].

    The hash (scrypt) is printed; the passphrase is kept nowhere.
    """
    if path is not None:
        text = path.read_text().partition("\n")[0].strip("\r")
    else:
        text = click.prompt("Passphrase", hide_input=True, confirmation_prompt=True, err=True)
    if len(text) < 8:
        raise click.UsageError("A passphrase has at least 8 characters.")
    click.echo(hash_passphrase(text))


@click.group(
    cls=SuggestingGroup,
    epilog=examples(
        ("toolpost logins list", "which clients are logged in, as whom, and since when"),
        ("toolpost logins revoke --caller ada", "all of one caller: a device was lost"),
    ),
)
def logins() -> None:
    """List and revoke the logins of clients at this gateway.

    A login is what a person has allowed a client, where [login] is enabled. For logins of the gateway at servers there are
    `toolpost login` and `toolpost logout`.
    """


_caller_option = click.option("--caller", metavar="NAME", help="Logins of this caller, with all people under its name.")
_client_option = click.option("--client", metavar="ID", help="Logins of this client.")


@logins.command(
    name="list",
    epilog=examples(
        ("toolpost logins list", "the newest first"),
        ("toolpost logins list --caller ada --json", "for other programs"),
    ),
)
@_caller_option
@_client_option
@config_option
@json_option(
    "Print `{logins: [{id, caller, client, clientName, scopes, resource, since, lastUsed, until}]}` on one line."
)
def list_all(caller: str | None, client: str | None, config_path: Path | None, *, as_json: bool) -> None:
    """List the logins that hold, the newest first."""
    found = run_async(_list, load_cli_config(config_path), Which(caller=caller, client=client))
    if as_json:
        print_json_line({"logins": [*found]})
        return
    if not found:
        click.echo("No client is logged in.", err=True)
        return
    rows = [
        (
            one["id"],
            one["caller"],
            one["clientName"] or one["client"],
            " ".join(one["scopes"]),
            one["since"],
            one["lastUsed"] or "",
        )
        for one in found
    ]
    print_table(table("login", "caller", "client", "scopes", "since", "last used", rows=rows))


@logins.command(
    epilog=examples(
        ("toolpost logins revoke 6f0c…", "one login, by its id in the list"),
        ("toolpost logins revoke --caller ada", "all of one caller"),
        ("toolpost logins revoke --client https://app.example/client.json", "all of one client"),
    )
)
@click.argument("login", required=False)
@_caller_option
@_client_option
@config_option
@json_option("Print `{revoked: […]}` on one line, each as in the list.")
def revoke(
    login: str | None, caller: str | None, client: str | None, config_path: Path | None, *, as_json: bool
) -> None:
    """Revoke a login, or all of a caller or client.

    Its tokens and streams end at once, at every gateway of the store. The person can log in again: to prevent that, change the
    caller's passphrase or remove the caller.
    """
    if login is None and caller is None and client is None:
        raise click.UsageError("Name a login, --caller or --client.")
    revoked = run_async(_revoke, load_cli_config(config_path), Which(login=login, caller=caller, client=client))
    if not revoked:
        raise NotFound("There is no such login.", hint="`toolpost logins list` shows which there are")
    if as_json:
        print_json_line({"revoked": [*revoked]})
    else:
        click.echo(f"Revoked {'one login' if len(revoked) == 1 else f'{len(revoked)} logins'}.", err=True)


async def _list(config: Config, which: Which) -> list[JsonObject]:
    # Opening a store would create one.
    if not await store_exists(config.store_url):
        return []
    async with open_part_store(config.store_url, PART.name, PART.migrations) as store:
        return [render_login(one, store) for one in await store.scripts.read(lambda: list_logins(which))]


async def _revoke(config: Config, which: Which) -> list[JsonObject]:
    if not await store_exists(config.store_url):
        return []
    async with open_part_store(config.store_url, PART.name, PART.migrations) as store:
        revoked = await store.scripts.run(lambda: revoke_all(which))
        store.wakeups.ring(TOPIC)
        return [render_login(one, store) for one in revoked]
