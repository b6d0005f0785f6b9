"""`[callers.NAME]` and `[http.oauth]`: callers over HTTP, their authentication and their visible tools."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from toolpost.contracts.errors import BadConfiguration
from toolpost.settings.marks import ADVANCED, SECRET
from toolpost.settings.variables import depends_on_user, has_references, read_secret

# No `:`, which separates the caller's name from the OAuth subject in an id.
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._@-]*"
CallerName = Annotated[str, Meta(pattern=f"^{_NAME}$", max_length=64)]

RESERVED: Final = frozenset({"cli", "console", "local", "oauth", "token"})
"""Names that the audit uses for callers without a configured name."""

Mode = Literal["full", "readonly", "test", "minimal"]

TEST_TAG: Final = "test"
"""The tag of servers that the mode `test` uses."""

Tags = Annotated[list[str] | None, Meta(description="see only servers with one of these tags")]
Tools = Annotated[
    list[str] | None, Meta(description="see only tools that match these patterns, such as `github__*`; `!…` excludes")
]

_LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_PASSPHRASE_HASH: Final = re.compile(r"scrypt:[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}:[A-Za-z0-9_-]{22}:[A-Za-z0-9_-]{43}")
"""`scrypt:LOG2_N:R:P:SALT:HASH`, see `base/passphrase.py`."""
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


class CallerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A caller over HTTP, and the tools it sees; without `tags` and `tools`, all of them."""

    token: Annotated[
        str | None, Meta(description="the caller's token, such as `${ADA_TOKEN}` or `${file:ada.token}`", extra=SECRET)
    ] = None
    passphrase_hash: Annotated[
        str | None,
        Meta(
            description="hash of the passphrase by which a person logs in; `toolpost auth passphrase` makes one",
            extra=SECRET | ADVANCED,
        ),
    ] = None
    tags: Tags = None
    tools: Tools = None
    mode: Annotated[Mode, Meta(description="the calls that it may make, as in `modes.mode`")] = "full"
    admin: Annotated[
        bool,
        Meta(
            description="may manage servers at `/api/servers`, read `/metrics`, reset and retry bus tasks, and reset circuits of"
            " models"
        ),
    ] = False
    subjects: Annotated[list[str], Meta(description="OAuth: tokens whose `sub` is one of these", extra=ADVANCED)] = []
    clients: Annotated[
        list[str], Meta(description="OAuth: tokens whose client id is one of these", extra=ADVANCED)
    ] = []
    scopes: Annotated[list[str], Meta(description="OAuth: tokens with one of these scopes", extra=ADVANCED)] = []
    groups: Annotated[
        list[str], Meta(description="OAuth: tokens of members of one of these groups", extra=ADVANCED)
    ] = []
    roles: Annotated[list[str], Meta(description="OAuth: tokens with one of these roles", extra=ADVANCED)] = []
    claims: Annotated[
        dict[str, list[str]],
        Meta(
            description="OAuth: tokens in which each of these claims has one of the values; `a.b` is the claim `b` within `a`",
            extra=ADVANCED,
        ),
    ] = {}
    issuer: Annotated[
        str | None,
        Meta(description="OAuth: the issuer of these tokens; required where there are several issuers", extra=ADVANCED),
    ] = None

    @property
    def has_token(self) -> bool:
        """Whether the caller authenticates with a token from this configuration."""
        return self.token is not None

    @property
    def has_passphrase(self) -> bool:
        """Whether a person may log in as this caller, where `[login]` is enabled."""
        return self.passphrase_hash is not None

    @property
    def has_claims(self) -> bool:
        """Whether the caller authenticates with an OAuth access token."""
        return bool(self.subjects or self.clients or self.scopes or self.groups or self.roles or self.claims)


class IssuerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An authorization server whose access tokens are accepted; `[callers.NAME]` names it as `issuer` if there are several."""

    issuer: Annotated[str, Meta(description="the authorization server, exactly as in the `iss` claim")] = ""
    audiences: Annotated[list[str], Meta(description="accepted values of the `aud` claim; the resource, if empty")] = []
    scopes: Annotated[list[str], Meta(description="scopes that every token must have")] = []
    jwks_url: Annotated[
        str | None,
        Meta(description="URL of its signing keys (JWKS); discovered from the issuer, if not set", extra=ADVANCED),
    ] = None
    introspection_url: Annotated[
        str | None,
        Meta(
            description="where its tokens are introspected (RFC 7662), opaque ones and JWTs, instead of by keys",
            extra=ADVANCED,
        ),
    ] = None
    introspection_client: Annotated[
        str | None, Meta(description="client id with which this server introspects tokens", extra=ADVANCED)
    ] = None
    introspection_secret: Annotated[
        str | None, Meta(description="the secret of that client, such as `${SECRET}`", extra=SECRET | ADVANCED)
    ] = None
    groups_claim: Annotated[str, Meta(description="the claim with a person's groups", extra=ADVANCED)] = "groups"
    roles_claim: Annotated[
        str,
        Meta(description="the claim with a person's roles, such as `realm_access.roles` of Keycloak", extra=ADVANCED),
    ] = "roles"


class OAuthSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Access tokens of authorization servers, for this server at `http.public_url`; `[callers.NAME]` maps them to callers."""

    audience_of: Annotated[
        Literal["gateway", "endpoint"],
        Meta(
            description="what a token is for: the whole `gateway`, or one `endpoint` such as `https://…/mcp/server/NAME`, where"
            " alone it is accepted",
            extra=ADVANCED,
        ),
    ] = "gateway"
    others: Annotated[
        Literal["refuse", "allow"],
        Meta(
            description="what to do with a valid token of the first issuer that is not mapped to any caller",
            extra=ADVANCED,
        ),
    ] = "refuse"
    issuers: Annotated[
        dict[str, IssuerSettings], Meta(description="authorization servers: `[http.oauth.issuers.NAME]`")
    ] = {}

    @property
    def main_issuer(self) -> IssuerSettings:
        """The first one: clients ask for its scopes, and only its tokens may come from callers that are not mapped."""
        return next(iter(self.issuers.values()))

    @property
    def places(self) -> dict[str, IssuerSettings]:
        """The issuers by the places of their settings."""
        return {f"http.oauth.issuers.{name}": issuer for name, issuer in self.issuers.items()}


def check_caller(name: str, caller: CallerSettings) -> None:
    """Raise `BadConfiguration` for a reserved name, and for settings by which no one or everyone would be this caller."""
    place = f"callers.{name}"
    if not re.fullmatch(_NAME, name) or len(name) > 64:
        raise BadConfiguration(f"callers.`{name}`: a caller's name may contain letters, digits, `.`, `_`, `@` and `-`.")
    if name in RESERVED:
        raise BadConfiguration(f"{place}: the name `{name}` is reserved.", hint="choose another name")
    PassphraseSetting(caller.passphrase_hash, f"{place}.passphrase_hash").check()
    if not caller.has_token and not caller.has_claims and not caller.has_passphrase:
        raise BadConfiguration(
            f"{place} has no token, so that no client can authenticate as `{name}`.",
            hint="set token; with [login], passphrase_hash; or, with [http.oauth], subjects, clients or other claims",
        )
    check_patterns(caller.tags, caller.tools, place)


def check_patterns(tags: list[str] | None, tools: list[str] | None, place: str) -> None:
    """Raise `BadConfiguration` for tags and patterns that cannot match."""
    if "" in (tags or ()):
        raise BadConfiguration(f"{place}.tags: a tag is empty.")
    if any(pattern.removeprefix("!") == "" for pattern in tools or ()):
        raise BadConfiguration(f"{place}.tools: a pattern is empty.", hint='write a pattern such as "github__*"')


def check_oauth(oauth: OAuthSettings, resource: str | None, callers: Mapping[str, CallerSettings]) -> None:
    """Raise `BadConfiguration` for settings that would accept no token, or that could be intercepted."""
    place = "http.oauth"
    if not oauth.issuers:
        raise BadConfiguration(f"{place} has no issuer.", hint=f"add [{place}.issuers.NAME] with issuer")
    if resource is None:
        raise BadConfiguration(
            "http.public_url is not set: access tokens are for a server by its public URL.",
            hint='such as public_url = "https://tools.example.com"; its endpoint is `/mcp` below it',
        )
    _check_url("http.public_url", resource)
    if resource.endswith("/mcp/mcp"):
        raise BadConfiguration("http.public_url ends with `/mcp`, which is added to it.", hint="leave `/mcp` out")
    for where, issuer in oauth.places.items():
        _check_issuer(where, issuer)
    known = [issuer.issuer for issuer in oauth.issuers.values()]
    if len(known) > len(set(known)):
        raise BadConfiguration(f"{place}.issuers: two of them are the same issuer.", hint="remove one of them")
    if sum(issuer.introspection_url is not None for issuer in oauth.issuers.values()) > 1:
        raise BadConfiguration(
            f"{place}.issuers: two of them introspect tokens.",
            hint="an opaque token does not say whose it is, and must not be shown to another issuer: let one of them do so",
        )
    for name, caller in callers.items():
        if caller.has_claims and caller.issuer is None and len(known) > 1:
            # The same `sub` is another person at another issuer.
            raise BadConfiguration(
                f"callers.{name} does not say whose tokens it is identified by.", hint=f"set issuer to one of {known}"
            )
    if oauth.others == "refuse" and not any(caller.has_claims for caller in callers.values()):
        raise BadConfiguration(
            f"{place}: tokens are not mapped to any caller, so that all would be refused.",
            hint='set subjects, clients, scopes, groups, roles or claims in [callers.NAME], or http.oauth.others = "allow"',
        )


def _check_issuer(place: str, issuer: IssuerSettings) -> None:
    if not issuer.issuer:
        raise BadConfiguration(f"{place}.issuer is not set.")
    for key in ("issuer", "jwks_url", "introspection_url"):
        _check_url(f"{place}.{key}", getattr(issuer, key))
    has_secret = issuer.introspection_secret is not None
    if issuer.introspection_url is not None and (issuer.introspection_client is None or not has_secret):
        raise BadConfiguration(
            f"{place}.introspection_url needs a client that may introspect tokens.",
            hint="set introspection_client and introspection_secret",
        )
    if issuer.introspection_url is None and (issuer.introspection_client is not None or has_secret):
        raise BadConfiguration(
            f"{place}.introspection_url is not set: tokens would not be introspected.",
            hint="set it, or remove introspection_client and its secret",
        )


def _check_url(place: str, url: str | None) -> None:
    if url is not None and not is_trustworthy(url):
        raise BadConfiguration(f"{place} must be an https URL.", hint="http is allowed for this machine only")


def is_trustworthy(url: str) -> bool:
    """Whether a URL is https, or http on this machine, so that its answer cannot be changed in transit."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    is_plain = not parts.fragment and not (parts.username or parts.password) and not re.search(r"[\x00-\x20\"\\]", url)
    return is_plain and bool(parts.hostname) and (parts.scheme == "https" or is_local(url))


def is_local(url: str) -> bool:
    """Whether a URL is plain http on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in _LOCAL


def read_caller_token(name: str, caller: CallerSettings, *, project: Path) -> str | None:
    """Read a caller's token; None for one that is identified by claims only."""
    if caller.token is None:
        return None
    place = f"callers.{name}.token"
    token = read_secret(caller.token, project=project, place=place)
    if not _TOKEN.fullmatch(token):
        # It could not be sent in a header.
        raise BadConfiguration(
            f"{place}: a token must be printable ASCII without spaces.", hint="`toolpost auth token NAME` makes one"
        )
    return token


@dataclass(frozen=True)
class PassphraseSetting:
    """A setting that has the hash of a passphrase, or refers to one."""

    text: str | None
    place: str

    @property
    def depends_on_user(self) -> bool:
        """Whether the user of this process chooses the hash, by their environment, home folder or keychain."""
        return depends_on_user(self.text)

    def check(self) -> None:
        """Raise `BadConfiguration` for a text that is no hash, and refers to none."""
        if self.text is not None and not has_references(self.text):
            _check_hash(self.text, self.place)

    def read(self, project: Path) -> str | None:
        """Return the hash; None if the setting is not set."""
        if self.text is None:
            return None
        return _check_hash(read_secret(self.text, project=project, place=self.place), self.place)


def _check_hash(text: str, place: str) -> str:
    if not _PASSPHRASE_HASH.fullmatch(text):
        raise BadConfiguration(f"{place} is not the hash of a passphrase.", hint="make one: toolpost auth passphrase")
    return text
