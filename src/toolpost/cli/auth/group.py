"""`toolpost auth` and its table of commands; parts add theirs."""

from typing import Final

import click

from toolpost.manifest import Command
from toolpost.terminal.epilog import examples
from toolpost.terminal.group import LazyGroup, commands_of_parts

COMMANDS: Final = {
    "set": Command("toolpost.cli.auth.credentials:set_value", "Set a credential that a server is used with."),
    "list": Command("toolpost.cli.auth.credentials:list_values", "List the credentials that are set, without values."),
    "remove": Command("toolpost.cli.auth.credentials:remove", "Remove a credential, or all of a caller for a server."),
    "key": Command(
        "toolpost.cli.auth.key:key", "Show where the key of the credentials is, make a new one, or rotate it."
    ),
    "token": Command(
        "toolpost.cli.auth.token:token", "Make a token for a caller, and show the lines for toolpost.toml."
    ),
    "logout": Command("toolpost.cli.auth.logout:logout", "Log out of a server, and revoke its tokens."),
    **commands_of_parts("auth"),
}


@click.group(
    cls=LazyGroup,
    commands=COMMANDS,
    group="auth",
    epilog=examples(
        ("toolpost auth set github TOKEN", "asks for a value that a server needs"),
        ("toolpost auth list", "without values"),
        ("toolpost auth token ada", "a token for a caller of the gateway"),
        ("toolpost auth logout github", "undo `toolpost login github`"),
        ("toolpost auth key --rotate", "encrypt all credentials with a new key"),
    ),
)
def auth() -> None:
    """Manage credentials, their key, tokens and sessions.

    Credentials are encrypted in the store. Settings of a server refer to them as ${caller:KEY}, in `headers` and `env`; a running
    gateway uses a changed value at once. `toolpost login SERVER` logs in to a server.
    """
