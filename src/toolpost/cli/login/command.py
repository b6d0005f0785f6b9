"""`toolpost login SERVER`: log in to a server behind the gateway, in a browser."""

import asyncio
import os
import time
import webbrowser
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
from anyio import to_thread

from toolpost.cli.auth.credentials import check_owner
from toolpost.cli.login.listener import LoginListener, open_listener, read_pasted_urls
from toolpost.cli.servers.command import complete_server_names
from toolpost.contracts.errors import InvalidRequest, NotFound
from toolpost.credentials.device import DeviceLogin, begin_device_login, finish_device_login
from toolpost.credentials.grant import Grant
from toolpost.credentials.login_flow import PENDING_S, LoginAttempt, LoginFailed, begin_login, finish_login
from toolpost.credentials.probe import find_challenge
from toolpost.credentials.server_tokens import ServerToken
from toolpost.credentials.vault import Vault
from toolpost.settings import Config, make_concealer
from toolpost.settings.key_place import key_place_of
from toolpost.settings.section import SERVERS, credential_users
from toolpost.settings.servers import resolve_server
from toolpost.store import open_store
from toolpost.terminal import (
    config_option,
    examples,
    json_option,
    load_cli_config,
    print_json_line,
    printable,
    run_async,
)
from toolpost.terminal.failures import suggest
from toolpost.upstreams.spec import ServerSpec

_LATE: Final = "begin the login again; `--timeout` sets how long it may take"

caller_option = click.option(
    "--caller", metavar="NAME", default="", help="Whose login it is, for a server with a login of each caller."
)


@click.command(
    epilog=examples(
        ("toolpost login github", "open a browser, and wait for the login"),
        ("toolpost login github --no-browser", "print the URL, as for a remote machine"),
        ("toolpost login github --device", "a code for a browser elsewhere"),
        ("toolpost login github --caller ann", "the login of one caller"),
    )
)
@click.argument("server", shell_complete=complete_server_names)
@caller_option
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE", help="A scope to ask for in addition; repeatable.")
@click.option("--no-browser", is_flag=True, help="Print the URL instead of opening it.")
@click.option(
    "--device",
    is_flag=True,
    help="Print a code to type in a browser on another device, if the provider offers that (RFC 8628).",
)
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(1, PENDING_S), default=300.0, help="Seconds to wait for the login."
)
@config_option
@json_option(
    "Print `{server, caller, issuer, scopes, expiresAt, isRenewable}` on one line; with --device after another one,"
    " `{server, caller, userCode, url, completeUrl, expiresAt}`."
)
def login(
    server: str,
    caller: str,
    scopes: tuple[str, ...],
    timeout_s: float,
    config_path: Path | None,
    *,
    no_browser: bool,
    device: bool,
    as_json: bool,
) -> None:
    """Log in to a server behind the gateway that requires OAuth.

    Tokens are kept encrypted in the store and renewed by the gateway. A running gateway uses them without a restart.
    """
    config = load_cli_config(config_path)
    check_owner(config, caller)
    if device:
        grant = run_async(_log_in_on_device, config, server, caller, scopes, timeout_s, as_json)
    else:
        grant = run_async(_log_in, config, server, caller, scopes, timeout_s, no_browser)
    if as_json:
        print_json_line(
            {
                "server": server,
                "caller": caller or None,
                "issuer": grant.terms.issuer,
                "scopes": list(grant.scopes),
                "expiresAt": grant.expires_at,
                "isRenewable": grant.refresh_token is not None,
            }
        )
        return
    granted = f" with the scopes {', '.join(grant.scopes)}" if grant.scopes else ""
    if grant.refresh_token:
        until = "it is renewed by itself"
    elif grant.expires_at is None:
        until = "the provider does not say for how long"
    else:
        until = f"until {datetime.fromtimestamp(grant.expires_at, UTC).astimezone():%Y-%m-%d %H:%M}, then log in again"
    click.echo(printable(f"Logged in to {server} at {grant.terms.issuer}{granted}; {until}."))


@asynccontextmanager
async def open_server_token(
    config: Config, server: str, caller: str
) -> AsyncIterator[tuple[ServerSpec, ServerToken, Vault]]:
    """Open the store, and what a caller is authorized to at a server that is reached by URL."""
    known = credential_users(config)
    if server not in known:
        raise NotFound(f"No server `{server}` is configured.", hint=suggest(server, known, "see `toolpost servers`"))
    section, settings = known[server].section, known[server].settings
    resolved = resolve_server(
        server,
        settings,
        environment=os.environ,
        project=Path(config.project).absolute(),  # noqa: ASYNC240 (one path, at the command line)
        network=config.network,
        section=section,
    )
    is_mcp = section == SERVERS
    spec = ServerSpec(**vars(resolved), owner=caller, conceal=make_concealer(resolved), is_mcp=is_mcp)
    if caller and spec.credentials != "caller":
        raise InvalidRequest(
            f"All callers share the login to `{server}`.",
            hint=f'leave --caller out, or set `credentials = "caller"` in [{section}.{server}]',
        )
    if spec.url is None:
        raise InvalidRequest(
            f"The server `{server}` runs as a program here: there is nothing to log in to.",
            hint="programs get their credentials in `env`",
        )
    async with open_store(config.store_url, pool=2) as store:
        vault = Vault(store, key_place_of(config))
        yield spec, ServerToken(spec, vault), vault


@asynccontextmanager
async def _open_for_login(config: Config, server: str, caller: str) -> AsyncIterator[tuple[ServerToken, Vault]]:
    async with open_server_token(config, server, caller) as (spec, server_token, vault):
        if not server_token.auth.needs_person:
            raise InvalidRequest(
                f"The server `{server}` needs no login: the gateway gets tokens by `{server_token.auth.type}`."
            )
        server_token.challenge = await find_challenge(spec, server_token)
        yield server_token, vault


async def _log_in(
    config: Config, server: str, caller: str, scopes: tuple[str, ...], timeout_s: float, no_browser: bool
) -> Grant:
    async with (
        _open_for_login(config, server, caller) as (server_token, vault),
        open_listener(server_token.auth.redirect_port) as listener,
    ):
        attempt = await begin_login(server_token, vault, redirect_uri=listener.redirect_uri, scopes=scopes)
        with ExitStack() as stack:
            await _show(attempt, no_browser=no_browser)
            if no_browser:
                stack.enter_context(read_pasted_urls(listener))
            try:
                async with asyncio.timeout(timeout_s):
                    return await _finish(listener, server_token, vault)
            except TimeoutError:
                raise _make_late_error(timeout_s) from None


async def _log_in_on_device(
    config: Config, server: str, caller: str, scopes: tuple[str, ...], timeout_s: float, as_json: bool
) -> Grant:
    async with _open_for_login(config, server, caller) as (server_token, vault):
        login = await begin_device_login(server_token, scopes=scopes)
        _show_code(login, server, caller, as_json=as_json)
        try:
            async with asyncio.timeout(timeout_s):
                return await finish_device_login(server_token, vault, login)
        except TimeoutError:
            raise _make_late_error(timeout_s) from None


def _show_code(login: DeviceLogin, server: str, caller: str, *, as_json: bool) -> None:
    if as_json:
        print_json_line(
            {
                "server": server,
                "caller": caller or None,
                "userCode": login.user_code,
                "url": login.url,
                "completeUrl": login.complete_url,
                "expiresAt": time.time() + login.expires_s,
            }
        )
    click.echo("Open this page in a browser on any device, and log in with the code:", err=True)
    click.echo(printable(f"{login.url}\n{login.user_code}"), err=True)
    if login.complete_url:
        click.echo(printable(f"The same page with the code in it: {login.complete_url}"), err=True)


def _make_late_error(timeout_s: float) -> LoginFailed:
    return LoginFailed(f"No login was completed within {timeout_s:g} s", hint=_LATE)


async def _show(attempt: LoginAttempt, *, no_browser: bool) -> None:
    is_opened = not no_browser and await to_thread.run_sync(_open_browser, attempt.url)
    if is_opened:
        click.echo(
            printable(f"Log in at {attempt.host}, in the browser window that has just opened. If none has:"), err=True
        )
    else:
        click.echo(printable(f"Open this URL in a browser, and log in at {attempt.host}:"), err=True)
    click.echo(printable(attempt.url), err=True)
    if not is_opened:
        click.echo("If the browser is on another machine, paste the URL here that it ends at.", err=True)


def _open_browser(url: str) -> bool:
    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False


async def _finish(listener: LoginListener, server_token: ServerToken, vault: Vault) -> Grant:
    while True:
        parameters = await listener.next_redirect()
        try:
            return await finish_login(server_token, vault, parameters)
        except LoginFailed as failure:
            # Any page can send a browser to the loopback address: a redirect that is not ours does not end the login.
            if not failure.is_known_login:
                click.echo(printable(f"ignored a redirect: {failure.message}"), err=True)
                continue
            raise
