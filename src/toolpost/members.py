"""Builds the HTTP endpoint's callers from the configuration: token digests, scopes and the OAuth verifier."""

from pathlib import Path
from typing import Final, Protocol

from toolpost.base.caller import UNLIMITED, Scope
from toolpost.endpoints.auth.oauth_rules import OAuthRules
from toolpost.endpoints.auth.roster import UNMAPPED_CALLER, KnownCaller, Members, TokenVerifier, digest_of
from toolpost.endpoints.sdk.lazy import resource_server
from toolpost.settings import CallerSettings, Config, OAuthSettings
from toolpost.settings.callers import Mode

TEST_TAG: Final = "test"
"""The tag of servers that the mode `test` uses."""


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


def mode_scope(config: Config, mode: Mode) -> Scope:
    """Return what a mode limits a caller or the gateway to."""
    if mode == "readonly":
        return Scope(is_read_only=True, confirmed=frozenset(config.modes.confirmed))
    if mode == "test":
        return Scope(tags=frozenset({TEST_TAG}))
    return Scope(tools=tuple(config.modes.minimal)) if mode == "minimal" else UNLIMITED


def members_of(config: Config, before: Members | None = None) -> Members:
    """Read the callers and their tokens; keep the token verifier of `before`, with its cached keys, if its rules are the same."""
    tokens = config.caller_tokens()
    callers = [
        _make_known_caller(name, caller, tokens[name], mode_scope(config, caller.mode))
        for name, caller in config.callers.items()
    ]
    if (token := config.token()) is not None:
        callers.append(KnownCaller(name="token", token=digest_of(token.encode()), is_admin=True))
    oauth = config.http.oauth
    return Members(
        callers=tuple(callers),
        endpoint=scope_of(config.http),
        verifier=_make_verifier(oauth, Path(config.project), before) if oauth is not None else None,
        others=UNMAPPED_CALLER if oauth is not None and oauth.others == "allow" else None,
    )


def _make_known_caller(name: str, caller: CallerSettings, token: str | None, mode: Scope) -> KnownCaller:
    return KnownCaller(
        name=name,
        token=digest_of(token.encode()) if token is not None else None,
        scope=scope_of(caller),
        mode=mode,
        is_admin=caller.admin,
        subjects=frozenset(caller.subjects),
        clients=frozenset(caller.clients),
        scopes=frozenset(caller.scopes),
    )


def _make_verifier(oauth: OAuthSettings, project: Path, before: Members | None) -> TokenVerifier:
    rules = OAuthRules(
        issuer=oauth.issuer,
        resource=oauth.resource,
        audiences=tuple(oauth.audiences) or (oauth.resource,),
        scopes=tuple(oauth.scopes),
        jwks_url=oauth.jwks_url,
        jwks_file=project / oauth.jwks_file if oauth.jwks_file is not None else None,
        algorithms=tuple(oauth.algorithms),
    )
    known = before.verifier if before is not None else None
    # A key file may have changed; fetched keys are refreshed by the verifier.
    return known if known is not None and known.rules == rules and rules.jwks_file is None else resource_server(rules)
