"""Logging in on another device (RFC 8628): a person opens a page anywhere, and types a code that is shown here.

Nothing is stored until the tokens are there: this process polls for them, and the code that it polls with ends with it.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import anyio

from toolpost.base.redaction import remember_secrets
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.credentials.grant import NAME, Grant, Registration, TokenTerms, encode_grant
from toolpost.credentials.login_flow import LoginFailed
from toolpost.credentials.server_tokens import ServerToken, load_protocol
from toolpost.credentials.vault import Vault

if TYPE_CHECKING:
    from toolpost.credentials.token_requests import TokenRefused

INTERVAL_S: Final = 5.0
"""How often the token endpoint is asked where the authorization server does not say; also what `slow_down` adds to it."""

INTERVAL_LIMITS_S: Final = 0.1, 60.0
"""An authorization server that asks for longer pauses would keep a person waiting who has logged in."""

_AGAIN: Final = "begin the login again"


@dataclass(frozen=True, kw_only=True)
class DeviceLogin:
    """A login that a person has to complete on another device."""

    url: str
    """The page at which the code is typed."""
    complete_url: str | None
    """The same page with the code in it; None if there is none."""
    user_code: str
    expires_s: float
    """How long the code is valid."""
    interval_s: float
    device_code: str = field(repr=False)
    terms: TokenTerms
    registration: Registration
    scope: str | None


async def begin_device_login(server_token: ServerToken, *, scopes: Sequence[str] = ()) -> DeviceLogin:
    """Find the authorization server, register there if need be, and ask it for a code.

    `scopes` are asked for in addition. Raises `LoginFailed` if it has no such logins, `OAuthFailed` or `UpstreamUnavailable`.
    """
    await load_protocol()
    from mcp.client.auth.utils import union_scopes

    from toolpost.credentials.authorization_servers import check_page, choose_scopes, discover, register
    from toolpost.credentials.token_requests import begin_on_device

    auth, fetcher = server_token.auth, server_token.fetcher
    await server_token.load()
    found = await discover(server_token.url, auth, server_token.challenge, fetcher)
    if found.device_endpoint is None:
        raise LoginFailed(
            f"The authorization server {found.issuer[:200]} does not offer logins on another device",
            hint=f"run `toolpost login {server_token.server} --no-browser`, and paste the URL at which the browser ends",
        )
    scope = union_scopes(choose_scopes(found, auth, server_token.challenge), " ".join(scopes) or None)
    known = server_token.grant.registration if server_token.grant is not None else None
    registration = await register(found, auth, fetcher, redirect_uri=None, known=known, scope=scope)
    answer = await begin_on_device(found, auth, registration, fetcher, scope=scope)
    url, complete = _text_of(answer, "verification_uri"), _text_of(answer, "verification_uri_complete")
    device_code, user_code = _text_of(answer, "device_code"), _text_of(answer, "user_code")
    expires_s = _seconds_of(answer, "expires_in", default=0.0)
    if not url or not device_code or not user_code or not expires_s:
        raise LoginFailed(
            "The authorization server's answer has no code to log in with", hint="log in without --device instead"
        )
    remember_secrets([device_code])
    for page in (url, complete):
        if page:
            await check_page(page, fetcher)
    return DeviceLogin(
        url=url,
        complete_url=complete,
        user_code=user_code,
        expires_s=expires_s,
        interval_s=_limit(_seconds_of(answer, "interval", default=INTERVAL_S)),
        device_code=device_code,
        terms=found.terms,
        registration=registration,
        scope=scope,
    )


async def finish_device_login(server_token: ServerToken, vault: Vault, login: DeviceLogin) -> Grant:
    """Poll until the person has logged in, and store the tokens.

    Raises `LoginFailed` if the person refuses or the code expires, `OAuthFailed` if the authorization server refuses.
    """
    try:
        async with asyncio.timeout(login.expires_s):
            return await _poll(server_token, vault, login)
    except TimeoutError:
        raise _make_expired_error() from None


async def _poll(server_token: ServerToken, vault: Vault, login: DeviceLogin) -> Grant:
    from toolpost.credentials.authorization_servers import OAuthFailed
    from toolpost.credentials.token_requests import TokenRefused, exchange_device_code

    interval_s = login.interval_s
    while True:
        await asyncio.sleep(interval_s)
        try:
            grant = await exchange_device_code(
                login.terms,
                server_token.auth,
                login.registration,
                server_token.fetcher,
                device_code=login.device_code,
                scope=login.scope,
            )
        except TokenRefused as refusal:
            interval_s += _read_refusal(refusal)
        except OAuthFailed:
            raise
        except UpstreamUnavailable:
            # A server that is slow or fails is asked less often (§3.5): everyone who polls would keep it from recovering.
            interval_s = _limit(2 * max(interval_s, 1.0))
        else:
            # Even if the command is interrupted now: this is the only copy of the tokens.
            with anyio.CancelScope(shield=True):
                await vault.put(server_token.server, server_token.owner, NAME, encode_grant(grant))
                await server_token.load()
            return grant


def _read_refusal(refusal: "TokenRefused") -> float:
    """Return by how many seconds the interval grows; raises the refusal if there is nothing to wait for."""
    if refusal.error == "authorization_pending":
        return 0.0
    if refusal.error == "slow_down":
        return INTERVAL_S
    if refusal.error == "access_denied":
        raise LoginFailed("The login was refused on the other device", hint=_AGAIN) from refusal
    if refusal.error == "expired_token":
        raise _make_expired_error() from refusal
    raise refusal


def _make_expired_error() -> LoginFailed:
    return LoginFailed("The code has expired before anyone logged in with it", hint=_AGAIN)


def _limit(interval_s: float) -> float:
    least, most = INTERVAL_LIMITS_S
    return min(most, max(least, interval_s))


def _text_of(answer: dict[str, Any], name: str) -> str | None:
    value = answer.get(name)
    return value if isinstance(value, str) and value.isprintable() else None


def _seconds_of(answer: dict[str, Any], name: str, *, default: float) -> float:
    value = answer.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return default
    try:
        return float(value) if math.isfinite(value) and value > 0 else default
    except OverflowError:  # a whole number of any size
        return default
