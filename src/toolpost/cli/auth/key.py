"""`toolpost auth key`: the key that encrypts credentials."""

from pathlib import Path

import click

from toolpost.cli.auth.credentials import open_vault
from toolpost.contracts.errors import NotFound
from toolpost.credentials.keys import make_key
from toolpost.credentials.login_flow import is_pending_login
from toolpost.settings import Config
from toolpost.settings.key_place import key_place_of
from toolpost.store import store_exists
from toolpost.terminal import (
    config_option,
    examples,
    json_option,
    load_cli_config,
    print_json_line,
    printable,
    run_async,
)


@click.command(
    epilog=examples(
        ("toolpost auth key", "where the key is: a variable, a file or the keychain"),
        ("export TOOLPOST_CREDENTIALS_KEY=$(toolpost auth key --new)", "a new key, instead of a key file"),
        ("toolpost auth key --new > credentials.key", "for credentials.key in toolpost.toml"),
        ("toolpost auth key --rotate", "make a new key, in the file or keychain that is configured"),
        ('TOOLPOST_CREDENTIALS_KEY="$NEW $OLD" toolpost auth key --rotate', "where the key is in a variable"),
    )
)
@click.option("--new", "makes_new", is_flag=True, help="Print a new random key; nothing else is changed.")
@click.option("--rotate", "rotates", is_flag=True, help="Encrypt all credentials with a new key.")
@config_option
@json_option("Print `{keyPlace}` on one line, with --new `{key}`, with --rotate `{credentials, keyPlace}`.")
def key(config_path: Path | None, *, makes_new: bool, rotates: bool, as_json: bool) -> None:
    """Show where the key of the credentials is, make a new one, or rotate it.

    While keys rotate, running gateways go on; of the old key, the place keeps a copy until the next rotation. If the key is in
    TOOLPOST_CREDENTIALS_KEY, put a new one before it first (--new prints one), and remove the old one afterwards.
    """
    if makes_new and rotates:
        raise click.UsageError("--new and --rotate cannot be combined")
    if makes_new:
        made = make_key()
        if as_json:
            print_json_line({"key": made})
        else:
            click.echo(made)
        return
    config = load_cli_config(config_path)
    place = key_place_of(config).shown
    if not rotates:
        if as_json:
            print_json_line({"keyPlace": place})
        else:
            click.echo(printable(place))
        return
    count = run_async(_rotate, config)
    if as_json:
        print_json_line({"credentials": count, "keyPlace": place})
        return
    what = "one credential is" if count == 1 else f"{count} credentials are"
    click.echo(f"{what.capitalize()} encrypted with the new key in {printable(place)}.", err=True)


async def _rotate(config: Config) -> int:
    """Encrypt all credentials with a new key; returns how many there are."""
    if not await store_exists(config.store_url):
        raise NotFound("There is no store yet, and nothing in it.", hint="`toolpost auth set` creates it")
    async with open_vault(config) as vault:
        await vault.rotate()
        return len([info for info in await vault.list() if not is_pending_login(info.name)])
