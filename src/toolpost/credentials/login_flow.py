"""Logging in: the authorization URL that a person opens, and the redirect that comes back.

Between the two, the state for the second half is in the vault, encrypted, for ten minutes: the redirect may arrive at another
gateway of the store. It is found by the `state` of the URL, of which only a hash is stored, and removed before it is used, so
that a replayed redirect finds nothing.
"""

import base64
import hashlib
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from toolpost.contracts.errors import InvalidRequest
from toolpost.credentials.grant import NAME, Grant, Registration, TokenTerms, encode_grant
from toolpost.credentials.server_tokens import ServerToken, load_protocol
from toolpost.credentials.vault import Vault

PENDING_S: Final = 600.0
"""How long a login may take."""

PENDING_LIMIT: Final = 10
"""How many logins of one owner to one server may have begun; the oldest one makes room for the next."""

TICKETS_LIMIT: Final = 100
"""How many addresses of such logins may be open."""

_PREFIX: Final = "login "
_TICKET: Final = "ticket "
_USED: Final = b"used"


class LoginFailed(InvalidRequest):
    """The login failed."""

    is_known_login = True
    """Whether the redirect was that of a login that was begun here; any page can make one up."""


@dataclass(frozen=True, kw_only=True)
class LoginAttempt:
    """A login that a person has to complete in a browser."""

    url: str
    """The authorization URL, which contains the state: shown to that person alone."""
    issuer: str
    scopes: Sequence[str]

    @property
    def host(self) -> str:
        """Where the URL leads, for people: with a port if it has one, and without what may stand before the host."""
        parts = urlsplit(self.url)
        return f"{parts.hostname}:{parts.port}" if parts.port is not None else parts.hostname or ""


class _PendingLogin(msgspec.Struct, frozen=True, kw_only=True):
    verifier: str
    terms: TokenTerms
    registration: Registration
    scope: str | None
    states_issuer: bool
    """Whether the authorization server always names itself in the redirect (RFC 9207)."""
    browser: str | None
    """The hash of a secret that the browser which began it has."""
    ticket: str | None = None
    """The ticket with which it was begun: its id, None without one."""
    until: float


async def begin_login(
    server_token: ServerToken,
    vault: Vault,
    *,
    redirect_uri: str,
    scopes: Sequence[str] = (),
    browser: str | None = None,
    ticket: str | None = None,
) -> LoginAttempt:
    """Find the authorization server, register there if need be, and make the URL to open.

    `scopes` are asked for in addition. `browser` is a secret that the browser must show at the end, too. `ticket` is the id of
    the one with which the login is begun, and is used up at its end. Raises `OAuthFailed` or `UpstreamUnavailable`.
    """
    await load_protocol()
    from mcp.client.auth.oauth2 import PKCEParameters
    from mcp.client.auth.utils import union_scopes

    from toolpost.credentials.authorization_servers import check_page, check_pkce, choose_scopes, discover, register

    auth, fetcher = server_token.auth, server_token.fetcher
    await server_token.load()
    found = await discover(server_token.url, auth, server_token.challenge, fetcher)
    check_pkce(found, auth)
    await check_page(found.authorization_endpoint, fetcher)
    scope = union_scopes(choose_scopes(found, auth, server_token.challenge), " ".join(scopes) or None)
    known = await _find_registration(server_token, vault, redirect_uri)
    registration = await register(found, auth, fetcher, redirect_uri=redirect_uri, known=known, scope=scope)
    pkce = PKCEParameters.generate()
    state = _make_state(server_token.server, server_token.owner)
    pending = _PendingLogin(
        verifier=pkce.code_verifier,
        terms=found.terms,
        registration=registration,
        scope=scope,
        states_issuer=bool(found.metadata and found.metadata.authorization_response_iss_parameter_supported),
        browser=_hash(browser) if browser is not None else None,
        ticket=ticket,
        until=time.time() + PENDING_S,
    )
    await vault.put(server_token.server, server_token.owner, _name_of(state), msgspec.json.encode(pending))
    parameters = {
        "response_type": "code",
        "client_id": registration.client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": pkce.code_challenge,
        "code_challenge_method": "S256",
    }
    if found.resource:
        parameters["resource"] = found.resource
    if scope:
        parameters["scope"] = scope
        if "offline_access" in scope.split():
            # Without it, OpenID Connect providers ignore that scope.
            parameters["prompt"] = "consent"
    url = _add_parameters(found.authorization_endpoint, {**auth.parameters, **parameters})
    return LoginAttempt(url=url, issuer=found.issuer, scopes=(scope or "").split())


def read_state(parameters: Mapping[str, str]) -> tuple[str, str]:
    """Return the server and the owner that the redirect of a login is about; raises `LoginFailed` for one that names none."""
    try:
        named = parameters["state"].partition(".")[2]
        server, _, owner = base64.urlsafe_b64decode(named + "=" * (-len(named) % 4)).decode().partition("\n")
    except (KeyError, ValueError):
        server = owner = ""
    if not server:
        raise LoginFailed("This is not the end of a login: it has no valid state", hint="begin the login again")
    return server, owner


async def finish_login(
    server_token: ServerToken, vault: Vault, parameters: Mapping[str, str], *, browser: str | None = None
) -> Grant:
    """Take the parameters of the redirect, exchange the code and store the tokens.

    Raises `LoginFailed`, `OAuthFailed` or `UpstreamUnavailable`. Whatever happens, the same redirect cannot be used again.
    """
    await load_protocol()
    from toolpost.credentials.token_requests import exchange_code

    pending = await _take_pending(server_token, vault, parameters["state"])
    if pending.browser is not None and (browser is None or not secrets.compare_digest(pending.browser, _hash(browser))):
        # Someone else's redirect: it would log this caller in with another person's account.
        raise LoginFailed("This login was begun in another browser", hint="begin the login again, in this one")
    issuer = parameters.get("iss")
    # Before anything else is believed (RFC 9207): the redirect may come from another authorization server. Compared as text.
    if issuer != pending.terms.issuer and (issuer is not None or pending.states_issuer):
        said = f"names another issuer ({issuer[:200]}) than" if issuer is not None else "does not name its issuer,"
        raise LoginFailed(
            f"The redirect of the login {said} {pending.terms.issuer}",
            hint="begin the login again; if it happens again, the server may be trying to get at the login of another",
        )
    if error := parameters.get("error"):
        described = _shown(parameters.get("error_description", ""))
        because = f" ({described})" if described else ""
        raise LoginFailed(f"The login was refused: {_shown(error)}{because}", hint="begin the login again")
    if not (code := parameters.get("code")):
        raise LoginFailed("The redirect of the login has no code", hint="begin the login again")
    if pending.ticket is not None and not await vault.put(
        server_token.server,
        server_token.owner,
        _name_of_ticket(pending.ticket),
        _USED,
        expect=_hash(browser or "").encode(),
    ):
        raise _make_ticket_error(is_used=True)
    grant = await exchange_code(
        pending.terms,
        server_token.auth,
        pending.registration,
        server_token.fetcher,
        code=code,
        verifier=pending.verifier,
        scope=pending.scope,
    )
    await vault.put(server_token.server, server_token.owner, NAME, encode_grant(grant))
    await server_token.load()
    return grant


async def check_pending(vault: Vault, server: str, owner: str, state: str) -> None:
    """Raise `LoginFailed` unless a login with this state was begun: anyone can make one up, with any server and owner."""
    if await vault.get(server, owner, _name_of(state)) is None:
        raise _make_unknown_error()


async def _take_pending(server_token: ServerToken, vault: Vault, state: str) -> _PendingLogin:
    name = _name_of(state)
    raw = await vault.get(server_token.server, server_token.owner, name)
    is_taken = raw is not None and await vault.remove(server_token.server, server_token.owner, name) == 1
    pending = msgspec.json.decode(raw, type=_PendingLogin) if raw is not None and is_taken else None
    if pending is None or pending.until < time.time():
        raise _make_unknown_error()
    return pending


def _make_unknown_error() -> LoginFailed:
    failure = LoginFailed("This login has been completed already, or took too long", hint="begin the login again")
    failure.is_known_login = False
    return failure


async def check_ticket(vault: Vault, server: str, owner: str, ticket: str, browser: str, *, bind: bool) -> None:
    """Raise `LoginFailed` for a ticket that another browser has opened, or with which a login was completed.

    With `bind` it belongs to this browser from then on.
    """
    name, mine = _name_of_ticket(ticket), _hash(browser).encode()
    if bind and await vault.put(server, owner, name, mine, expect=None):
        return
    known = await vault.get(server, owner, name)
    if known is not None and known != mine:
        raise _make_ticket_error(is_used=known == _USED)
    if known is None and len([each for each in await _clean_up(vault, server, owner) if each.startswith(_TICKET)]) >= (
        TICKETS_LIMIT
    ):
        raise LoginFailed("Too many logins to this server have begun", hint="wait ten minutes")


def _make_ticket_error(*, is_used: bool) -> LoginFailed:
    what = "A login was completed with this address" if is_used else "This address was opened in another browser"
    return LoginFailed(f"{what}: it is valid once", hint="make the call again for a new one")


async def _find_registration(server_token: ServerToken, vault: Vault, redirect_uri: str) -> Registration | None:
    """Return the client to go on with: of the last login, or of one that has begun, so that pages do not register many."""
    server, owner = server_token.server, server_token.owner
    pending = [name for name in await _clean_up(vault, server, owner) if name.startswith(_PREFIX)]
    for name in pending[PENDING_LIMIT - 1 :]:
        await vault.remove(server, owner, name)
    known = server_token.grant.registration if server_token.grant is not None else None
    if (known is None or known.redirect_uri != redirect_uri) and pending:
        raw = await vault.get(server, owner, pending[0])
        known = msgspec.json.decode(raw, type=_PendingLogin).registration if raw is not None else known
    return known


async def _clean_up(vault: Vault, server: str, owner: str) -> list[str]:
    """Remove what expired logins left, and return the names of the others' rows, the newest first."""
    changes = await vault.list_changes(server, owner)
    names = sorted(filter(is_pending_login, changes), key=changes.__getitem__, reverse=True)
    # A ticket that another browser could open again has expired before its row has.
    old = {name for name in names if changes[name] < time.time() - PENDING_S}
    for name in old:
        await vault.remove(server, owner, name)
    return [name for name in names if name not in old]


def is_pending_login(name: str) -> bool:
    """Whether a credential of this name is part of a login that is not complete."""
    return name.startswith((_PREFIX, _TICKET))


def _make_state(server: str, owner: str) -> str:
    named = base64.urlsafe_b64encode(f"{server}\n{owner}".encode()).decode().rstrip("=")
    return f"{secrets.token_urlsafe(32)}.{named}"


def _name_of(state: str) -> str:
    return f"{_PREFIX}{_hash(state)[:32]}"


def _name_of_ticket(ticket: str) -> str:
    return f"{_TICKET}{_hash(ticket)[:32]}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _add_parameters(url: str, parameters: Mapping[str, str]) -> str:
    parts = urlsplit(url)
    # What is in the URL already stays, unless it is a parameter that is set here.
    own = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in parameters]
    return urlunsplit(parts._replace(query=urlencode([*own, *parameters.items()]), fragment=""))


def _shown(text: str) -> str:
    return "".join(character for character in text if character.isprintable())[:300]
