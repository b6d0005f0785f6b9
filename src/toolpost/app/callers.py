"""Builds the HTTP endpoint's callers from the configuration: token digests, scopes and the OAuth verifier."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, get_args

import msgspec

from toolpost.base.caller import UNLIMITED, Scope
from toolpost.contracts.errors import BadConfiguration, InvalidRequest
from toolpost.endpoints.auth.oauth_rules import IntrospectionRules, IssuerRules, OAuthRules
from toolpost.endpoints.auth.roster import (
    UNMAPPED_CALLER,
    CallerTable,
    KnownCaller,
    Roster,
    TokenIssuer,
    TokenVerifier,
    digest_of,
)
from toolpost.endpoints.sdk.lazy import resource_server
from toolpost.providers.servers import Servers
from toolpost.settings import Config
from toolpost.settings.callers import (
    TEST_TAG,
    CallerSettings,
    IssuerSettings,
    Mode,
    OAuthSettings,
    PassphraseSetting,
    check_caller,
    read_caller_token,
)
from toolpost.settings.variables import depends_on_user, read_secret


class VisibilityLimits(Protocol):
    """Settings that limit the visible tools, of a caller or an endpoint; None is no limit."""

    @property
    def tags(self) -> list[str] | None: ...

    @property
    def tools(self) -> list[str] | None: ...


def scope_of(limits: VisibilityLimits) -> Scope:
    tags, tools = limits.tags, limits.tools
    return Scope(
        tags=None if tags is None else frozenset(tags), tools=None if tools is None else tuple(dict.fromkeys(tools))
    )


def scopes_of(limits: VisibilityLimits) -> tuple[Scope, ...]:
    """Return the scope as a tuple for a view, empty if nothing is limited."""
    scope = scope_of(limits)
    return (scope,) if scope.is_limited else ()


def check_stored_caller(name: str, *, tags: Sequence[str] | None, tools: Sequence[str] | None, mode: str) -> None:
    """Raise `InvalidRequest` for a name or limits that no caller may have: the same as in `[callers.NAME]`."""
    if mode not in get_args(Mode):
        raise InvalidRequest(f"There is no mode `{mode[:40]}`.", hint=f"known: {', '.join(get_args(Mode))}")
    tags, tools = (None if each is None else [*each] for each in (tags, tools))
    try:
        # By a subject, so that it has a way in: the token is checked nowhere else than where it is made.
        check_caller(name, CallerSettings(subjects=["any"], tags=tags, tools=tools))
    except BadConfiguration as error:
        raise InvalidRequest(error.message, hint=error.hint) from error


def mode_scope(config: Config, mode: Mode) -> Scope:
    """Return what a mode limits a caller or the gateway to."""
    if mode == "readonly":
        return Scope(is_read_only=True, confirmed=frozenset(config.modes.confirmed))
    if mode == "test":
        return Scope(tags=frozenset({TEST_TAG}))
    return Scope(tools=tuple(config.modes.minimal)) if mode == "minimal" else UNLIMITED


def note_needs(roster: Roster, servers: Servers) -> bool:
    """Note what servers need to know of callers; returns whether that is new. It takes effect with `roster.replace`."""
    before = roster.has_caller_credentials, roster.keeps_tokens
    now = servers.has_caller_credentials, servers.exchanges_callers_tokens
    roster.has_caller_credentials, roster.keeps_tokens = now
    return now != before


def read_callers(config: Config, before: CallerTable | None = None, login: TokenIssuer | None = None) -> CallerTable:
    """Read the callers and their tokens; keep the token verifier of `before`, with its cached keys, if its rules are the same."""
    tokens = config.caller_tokens()
    callers = [_make_known_caller(config, name, caller, tokens[name], login) for name, caller in config.callers.items()]
    if (token := config.token()) is not None:
        callers.append(
            KnownCaller(
                name="token",
                token=digest_of(token.encode()),
                is_admin=True,
                secrets_hash=_hash_secrets(login, None, token),
            )
        )
    oauth = config.http.oauth
    return CallerTable(
        callers=tuple(callers),
        endpoint=scope_of(config.http),
        read_only=mode_scope(config, "readonly"),
        verifier=_make_verifier(config, login, before) if oauth or login else None,
        others=replace(UNMAPPED_CALLER, issuer=oauth.main_issuer.issuer)
        if oauth is not None and oauth.others == "allow"
        else None,
    )


def read_proven_callers(config: Config) -> tuple[CallerTable, list[str]]:
    """Read the callers whose tokens prove something to a command, and the names of the others.

    The user of a command chooses its environment: a token from there would be compared with itself. A file of another user of
    this machine cannot be read.
    """
    kept = {name: caller for name, caller in config.callers.items() if _has_proof(config, name, caller)}
    unproven = [name for name in config.callers if name not in kept]
    members = read_callers(msgspec.structs.replace(config, callers=kept))
    if os.environ.get("TOOLPOST_TOKEN") or depends_on_user(config.http.token):
        members = replace(members, callers=tuple(each for each in members.callers if each.name in kept))
        unproven.append("token")
    return members, unproven


def _has_proof(config: Config, name: str, caller: CallerSettings) -> bool:
    if depends_on_user(caller.token) or depends_on_user(caller.passphrase_hash):
        return False
    try:
        read_caller_token(name, caller, project=Path(config.project))
    except BadConfiguration:
        return False
    return True


def _make_known_caller(
    config: Config, name: str, caller: CallerSettings, token: str | None, login: TokenIssuer | None
) -> KnownCaller:
    oauth = config.http.oauth
    passphrase = PassphraseSetting(caller.passphrase_hash, f"callers.{name}.passphrase_hash").read(Path(config.project))
    issuer = caller.issuer or (oauth.main_issuer.issuer if oauth is not None else None)
    issuers = oauth.issuers.values() if oauth is not None else ()
    # The issuer of a caller may also be one that a part brings, which has the usual names of claims.
    names = next((each for each in issuers if each.issuer == issuer), IssuerSettings())
    claims = [(names.groups_claim, caller.groups), (names.roles_claim, caller.roles), *caller.claims.items()]
    return KnownCaller(
        name=name,
        token=digest_of(token.encode()) if token is not None else None,
        scope=scope_of(caller),
        mode=mode_scope(config, caller.mode),
        is_admin=caller.admin,
        subjects=frozenset(caller.subjects),
        clients=frozenset(caller.clients),
        scopes=frozenset(caller.scopes),
        claims=tuple((claim, frozenset(values)) for claim, values in claims if values),
        issuer=issuer if caller.has_claims else None,
        passphrase=passphrase,
        secrets_hash=_hash_secrets(login, passphrase, token),
    )


def _hash_secrets(login: TokenIssuer | None, passphrase: str | None, token: str | None) -> str:
    return login.hash_secrets(f"{passphrase}\n{token}") if login is not None else ""


def _make_verifier(config: Config, login: TokenIssuer | None, before: CallerTable | None) -> TokenVerifier:
    oauth = config.http.oauth
    if oauth is not None and login is not None and config.http.resource != login.resource:
        raise BadConfiguration(
            f"By http.public_url this server is at `{config.http.resource}`, and `{login.issuer}` issues tokens for"
            f" `{login.resource}`.",
            hint="let both name the same server",
        )
    issuers = oauth.places if oauth is not None else {}
    rules = OAuthRules(
        resource=(config.http.resource if login is None else login.resource) or "",
        issuers=tuple(_make_rules(config, place, each, oauth) for place, each in issuers.items() if oauth is not None),
        is_per_endpoint=oauth is not None and oauth.audience_of == "endpoint",
        login=login.issuer if login is not None else None,
        login_scopes=login.scopes if login is not None else (),
    )
    known = before.verifier if before is not None else None
    return known if known is not None and known.rules == rules else resource_server(rules, login)


def _make_rules(config: Config, place: str, issuer: IssuerSettings, oauth: OAuthSettings) -> IssuerRules:
    project = Path(config.project)
    introspection = None
    if issuer.introspection_url is not None and issuer.introspection_client is not None:
        secret = read_secret(issuer.introspection_secret or "", project=project, place=f"{place}.introspection_secret")
        introspection = IntrospectionRules(
            url=issuer.introspection_url,
            client=issuer.introspection_client,
            secret=secret,
        )
    is_per_endpoint = oauth.audience_of == "endpoint"
    return IssuerRules(
        issuer=issuer.issuer,
        audiences=tuple(issuer.audiences) or (() if is_per_endpoint else (config.http.resource or "",)),
        scopes=tuple(issuer.scopes),
        jwks_url=issuer.jwks_url,
        introspection=introspection,
        network=config.resolve_network(),
    )
