"""`toolpost auth logout SERVER`: the end of a login at a server behind the gateway."""

from pathlib import Path

import click

from toolpost.cli.login.command import caller_option, open_server_token
from toolpost.cli.servers.command import complete_server_names
from toolpost.contracts.errors import NotFound
from toolpost.settings import Config
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
        ("toolpost auth logout github", "revoke and delete its tokens"),
        ("toolpost auth logout github --caller ann", "those of one caller"),
    )
)
@click.argument("server", shell_complete=complete_server_names)
@caller_option
@config_option
@json_option("Print `{server, caller, isRevoked}` on one line.")
def logout(server: str, caller: str, config_path: Path | None, *, as_json: bool) -> None:
    """Log out of a server, and revoke its tokens.

    They are deleted here in any case; some providers do not revoke them.
    """
    is_revoked = run_async(_log_out, load_cli_config(config_path), server, caller)
    if as_json:
        print_json_line({"server": server, "caller": caller or None, "isRevoked": is_revoked})
        return
    told = "the tokens are revoked" if is_revoked else "the tokens are deleted here; the provider has not revoked them"
    click.echo(printable(f"Logged out of {server}: {told}."))


async def _log_out(config: Config, server: str, caller: str) -> bool:
    async with open_server_token(config, server, caller) as (_, server_token, _vault):
        is_revoked = await server_token.log_out()
        if is_revoked is None:
            whose = f" of {caller}" if caller else ""
            raise NotFound(f"There is no login{whose} to `{server}`.", hint="see `toolpost auth list`")
        return is_revoked
