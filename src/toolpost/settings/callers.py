"""`[callers.NAME]` and `[http.oauth]`: who may call over HTTP, how they authenticate, and what they see."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from toolpost.contracts.errors import BadConfiguration

# No `:`, which separates the caller's name from the OAuth subject in an id.
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._@-]*"
CallerName = Annotated[str, Meta(pattern=f"^{_NAME}$", max_length=64)]

RESERVED: Final = frozenset({"cli", "local", "oauth", "token"})
"""Names that the audit uses for callers without a configured name."""

Mode = Literal["full", "readonly", "test", "minimal"]

Tags = Annotated[list[str] | None, Meta(description="see only servers with one of these tags")]
Tools = Annotated[
    list[str] | None, Meta(description="see only tools that match these patterns, such as `github__*`; `!…` excludes")
]
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]

_LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


class CallerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A caller over HTTP, and the tools it sees; without `tags` and `tools`, all of them."""

    token_env: Annotated[str | None, Meta(description="environment variable with the caller's token")] = None
    token_file: Annotated[str | None, Meta(description="file with the caller's token")] = None
    tags: Tags = None
    tools: Tools = None
    mode: Annotated[Mode, Meta(description="what it may call, as in `modes.mode`")] = "full"
    admin: Annotated[
        bool,
        Meta(description="may manage servers at `/api/servers`, read `/metrics`, and reset and retry bus tasks"),
    ] = False
    subjects: Annotated[list[str], Meta(description="OAuth: tokens whose `sub` is one of these")] = []
    clients: Annotated[list[str], Meta(description="OAuth: tokens whose client id is one of these")] = []
    scopes: Annotated[list[str], Meta(description="OAuth: tokens with one of these scopes")] = []

    @property
    def has_token(self) -> bool:
        """Whether the caller authenticates with a token from this configuration."""
        return self.token_env is not None or self.token_file is not None

    @property
    def has_claims(self) -> bool:
        """Whether the caller authenticates with an OAuth access token."""
        return bool(self.subjects or self.clients or self.scopes)


class OAuthSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Access tokens (JWT) of an authorization server; `[callers.NAME]` maps them to callers."""

    issuer: Annotated[str, Meta(description="the authorization server, as in the `iss` claim")] = ""
    resource: Annotated[str, Meta(description="the public URL of this server, `https://…/mcp`")] = ""
    audiences: Annotated[list[str], Meta(description="accepted values of the `aud` claim; the resource, if empty")] = []
    scopes: Annotated[list[str], Meta(description="scopes that every token must have")] = []
    jwks_url: Annotated[
        str | None, Meta(description="URL of its signing keys (JWKS); discovered from the issuer, if not set")
    ] = None
    jwks_file: Annotated[str | None, Meta(description="file with its signing keys instead")] = None
    algorithms: Annotated[
        list[Algorithm],
        Meta(
            description="accepted signature algorithms",
            extra_json_schema={"default": ["RS256", "PS256", "ES256", "EdDSA"]},
        ),
    ] = msgspec.field(default_factory=lambda: ["RS256", "PS256", "ES256", "EdDSA"])
    others: Annotated[
        Literal["refuse", "allow"], Meta(description="what to do with a valid token that is not mapped to any caller")
    ] = "refuse"


def check_caller(name: str, caller: CallerSettings) -> None:
    """Raise `BadConfiguration` for a reserved name, and for settings by which no one or everyone would be this caller."""
    place = f"callers.{name}"
    if not re.fullmatch(_NAME, name) or len(name) > 64:
        raise BadConfiguration(f"callers.`{name}`: a caller's name may contain letters, digits, `.`, `_`, `@` and `-`.")
    if name in RESERVED:
        raise BadConfiguration(f"{place}: the name `{name}` is reserved.", hint="choose another name")
    if caller.token_env is not None and caller.token_file is not None:
        raise BadConfiguration(f"{place} has both `token_env` and `token_file`.", hint="remove one of them")
    if not caller.has_token and not caller.has_claims:
        raise BadConfiguration(
            f"{place} has no token, so that no client can authenticate as `{name}`.",
            hint="set token_env or token_file; or, with [http.oauth], subjects, clients or scopes",
        )
    check_patterns(caller.tags, caller.tools, place)


def check_patterns(tags: list[str] | None, tools: list[str] | None, place: str) -> None:
    """Raise `BadConfiguration` for tags and patterns that cannot match."""
    if "" in (tags or ()):
        raise BadConfiguration(f"{place}.tags: a tag is empty.")
    if any(pattern.removeprefix("!") == "" for pattern in tools or ()):
        raise BadConfiguration(f"{place}.tools: a pattern is empty.", hint='write a pattern such as "github__*"')


def check_oauth(oauth: OAuthSettings, callers: Mapping[str, CallerSettings]) -> None:
    """Raise `BadConfiguration` for settings that would accept no token, or that could be intercepted."""
    place = "http.oauth"
    for key in ("issuer", "resource"):
        if not getattr(oauth, key):
            raise BadConfiguration(f"{place}.{key} is not set.")
    for key, url in (("issuer", oauth.issuer), ("resource", oauth.resource), ("jwks_url", oauth.jwks_url)):
        if url is not None and not is_trustworthy(url):
            raise BadConfiguration(f"{place}.{key} must be an https URL.", hint="http is allowed for this machine only")
    if oauth.jwks_url is not None and oauth.jwks_file is not None:
        raise BadConfiguration(f"{place} has both `jwks_url` and `jwks_file`.", hint="remove one of them")
    if not oauth.algorithms:
        raise BadConfiguration(f"{place}.algorithms is empty: no token would be accepted.")
    if oauth.others == "refuse" and not any(caller.has_claims for caller in callers.values()):
        raise BadConfiguration(
            f"{place}: tokens are not mapped to any caller, so that all would be refused.",
            hint='set subjects, clients or scopes in [callers.NAME], or http.oauth.others = "allow"',
        )


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
    if caller.token_env is not None:
        place = f"callers.{name}.token_env"
        token = os.environ.get(caller.token_env, "").strip()
        if not token:
            raise BadConfiguration(
                f"{place}: the environment variable {caller.token_env} is not set.",
                hint="set it before starting Toolpost",
            )
        return _check_token(token, place)
    if caller.token_file is not None:
        place = f"callers.{name}.token_file"
        return _check_token(read_token_file(project / caller.token_file, place), place)
    return None


def read_token_file(path: Path, place: str) -> str:
    """Read a file that contains only a token; raises `BadConfiguration` if it is empty or unreadable."""
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadConfiguration(f"{place}: cannot read {path}: {reason}.") from error
    if not token:
        raise BadConfiguration(f"{place}: {path} is empty.")
    return token


def _check_token(token: str, place: str) -> str:
    """Refuse a token that cannot be sent in a header."""
    if not _TOKEN.fullmatch(token):
        raise BadConfiguration(
            f"{place}: a token must be printable ASCII without spaces.",
            hint='generate one: python -c "import secrets; print(secrets.token_urlsafe(32))"',
        )
    return token
