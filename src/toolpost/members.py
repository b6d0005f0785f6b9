"""The callers of a configuration as the HTTP endpoint knows them: tokens read and digested, limits as scopes."""

from pathlib import Path
from typing import Protocol

from toolpost.base.caller import Scope
from toolpost.endpoints.auth.oauth_rules import OAuthRules
from toolpost.endpoints.auth.roster import UNMAPPED_CALLER, KnownCaller, Members, TokenVerifier, digest_of
from toolpost.endpoints.sdk.lazy import resource_server
from toolpost.settings import CallerSettings, Config, OAuthSettings


class Limits(Protocol):
    """What a caller and an endpoint may both be limited by."""

    @property
    def tags(self) -> list[str] | None:
        """Tags of servers."""
        ...

    @property
    def tools(self) -> list[str] | None:
        """Patterns of names."""
        ...


def scope_of(limits: Limits) -> Scope:
    """Return what is left to see."""
    tags, tools = limits.tags, limits.tools
    return Scope(
        tags=None if tags is None else frozenset(tags), tools=None if tools is None else tuple(dict.fromkeys(tools))
    )


def scopes_of(limits: Limits) -> tuple[Scope, ...]:
    """Return the same for a view, which has none where nothing is limited."""
    scope = scope_of(limits)
    return (scope,) if scope.is_limited else ()


def members_of(config: Config, before: Members | None = None) -> Members:
    """Read the callers. The verifier of access tokens is kept, with the keys that it has, if its rules are the same."""
    tokens = config.caller_tokens()
    callers = [_make_known_caller(name, caller, tokens[name]) for name, caller in config.callers.items()]
    if (token := config.token()) is not None:
        callers.append(KnownCaller(name="token", token=digest_of(token.encode()), is_admin=True))
    oauth = config.http.oauth
    return Members(
        callers=tuple(callers),
        endpoint=scope_of(config.http),
        verifier=_make_verifier(oauth, Path(config.project), before) if oauth is not None else None,
        others=UNMAPPED_CALLER if oauth is not None and oauth.others == "allow" else None,
    )


def _make_known_caller(name: str, caller: CallerSettings, token: str | None) -> KnownCaller:
    return KnownCaller(
        name=name,
        token=digest_of(token.encode()) if token is not None else None,
        scope=scope_of(caller),
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
    # A file may hold other keys by now; what was fetched is fetched again in its own time.
    return known if known is not None and known.rules == rules and rules.jwks_file is None else resource_server(rules)
