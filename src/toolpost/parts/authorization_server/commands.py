"""`toolpost auth passphrase`, and `toolpost auth sessions`: which clients are logged in, and an end to it."""

from pathlib import Path

import click

from toolpost import NotFound
from toolpost.base import JsonObject, hash_passphrase
from toolpost.parts.authorization_server import PART
from toolpost.parts.authorization_server.api import render_login
from toolpost.parts.authorization_server.records import Which, list_logins, revoke_all
from toolpost.parts.authorization_server.server import TOPIC
from toolpost.settings import Config
from toolpost.store import open_part_store, store_exists
from toolpost.terminal import (
    config_option,
    examples,
    json_option,
    load_cli_config,
    print_json_line,
    print_table,
    run_async,
    table,
)


@click.command(
    epilog=examples(
        ("toolpost auth passphrase", "asks for it twice"),
        ("toolpost auth passphrase --file passphrase.txt", "the first line of a file"),
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


@click.command(
    epilog=examples(
        ("toolpost auth sessions", "clients that are logged in, with their callers"),
        ("toolpost auth sessions --caller ada --json", "for other programs"),
        ("toolpost auth sessions --revoke 6f0c…", "end one, by its id in the list"),
        ("toolpost auth sessions --revoke --caller ada", "all of one caller: a device was lost"),
        ("toolpost auth sessions --revoke --client https://app.example/client.json", "all of one client"),
    )
)
@click.argument("session", metavar="[ID]", required=False)
@click.option("--caller", metavar="NAME", help="Sessions of this caller, with all people under its name.")
@click.option("--client", metavar="ID", help="Sessions of this client.")
@click.option("--revoke", "revokes", is_flag=True, help="Revoke the session, or all of a caller or client.")
@config_option
@json_option(
    "Print `{sessions: [{id, caller, client, clientName, scopes, resource, since, lastUsed, until}]}` on one line; with"
    " --revoke `{revoked: […]}`."
)
def sessions(
    session: str | None,
    caller: str | None,
    client: str | None,
    config_path: Path | None,
    *,
    revokes: bool,
    as_json: bool,
) -> None:
    """List or revoke the logins of clients at this gateway.

    A session is what a person has allowed a client, where [login] is enabled; the newest is first. With --revoke, its tokens and
    streams end at once, at every gateway of the store. The person can log in again: to prevent that, change the caller's
    passphrase or remove the caller. For logins of the gateway at servers there are `toolpost login` and `toolpost auth logout`.
    """
    config, which = load_cli_config(config_path), Which(login=session, caller=caller, client=client)
    if not revokes:
        _print_sessions(run_async(_list, config, which), as_json=as_json)
        return
    if session is None and caller is None and client is None:
        raise click.UsageError("--revoke needs the ID of a session, --caller or --client")
    revoked = run_async(_revoke, config, which)
    if not revoked:
        raise NotFound("There is no such session.", hint="`toolpost auth sessions` shows which there are")
    if as_json:
        print_json_line({"revoked": [*revoked]})
    else:
        click.echo(f"Revoked {'one session' if len(revoked) == 1 else f'{len(revoked)} sessions'}.", err=True)


def _print_sessions(found: list[JsonObject], *, as_json: bool) -> None:
    if as_json:
        print_json_line({"sessions": [*found]})
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
    print_table(table("session", "caller", "client", "scopes", "since", "last used", rows=rows))


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
