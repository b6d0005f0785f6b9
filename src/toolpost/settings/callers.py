"""`[callers.NAME]` and `[http.oauth]`: who may call over HTTP, how they show who they are, and what they see."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from toolpost.contracts.errors import BadConfiguration

# No `:`, which stands between a rule's name and whoever came in by it.
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._@-]*"
CallerName = Annotated[str, Meta(pattern=f"^{_NAME}$", max_length=64)]

RESERVED: Final = frozenset({"cli", "local", "oauth", "token"})
"""What the audit calls those who have no name of their own."""

Tags = Annotated[list[str] | None, Meta(description="see only servers that carry one of these tags")]
Tools = Annotated[list[str] | None, Meta(description="see only tools of these names, `github__*`; `!…` takes away")]
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]

_LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


class CallerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Somebody who may call over HTTP, and what they see; without `tags` and `tools`, everything."""

    token_env: Annotated[str | None, Meta(description="environment variable that holds their token")] = None
    token_file: Annotated[str | None, Meta(description="file that holds their token")] = None
    tags: Tags = None
    tools: Tools = None
    admin: Annotated[
        bool,
        Meta(description="may look after servers, at `/api/servers`, see `/metrics`, and reset and retry on the bus"),
    ] = False
    subjects: Annotated[list[str], Meta(description="OAuth: they are whose `sub` is one of these")] = []
    clients: Annotated[list[str], Meta(description="OAuth: whose client is one of these")] = []
    scopes: Annotated[list[str], Meta(description="OAuth: whose token has one of these scopes")] = []

    @property
    def has_token(self) -> bool:
        """Whether somebody comes in by a token of ours."""
        return self.token_env is not None or self.token_file is not None

    @property
    def has_claims(self) -> bool:
        """Whether somebody comes in by an access token of another server."""
        return bool(self.subjects or self.clients or self.scopes)


class OAuthSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Access tokens (JWT) of an authorization server; `[callers.NAME]` says who they stand for."""

    issuer: Annotated[str, Meta(description="the authorization server, as `iss` names it")] = ""
    resource: Annotated[str, Meta(description="the URL of this server as clients reach it, `https://…/mcp`")] = ""
    audiences: Annotated[list[str], Meta(description="what `aud` may name; the resource, if empty")] = []
    scopes: Annotated[list[str], Meta(description="scopes that every token must have")] = []
    jwks_url: Annotated[str | None, Meta(description="where its keys are; found through the issuer, if not set")] = None
    jwks_file: Annotated[str | None, Meta(description="file that holds its keys instead")] = None
    algorithms: Annotated[
        list[Algorithm],
        Meta(
            description="how tokens may be signed", extra_json_schema={"default": ["RS256", "PS256", "ES256", "EdDSA"]}
        ),
    ] = msgspec.field(default_factory=lambda: ["RS256", "PS256", "ES256", "EdDSA"])
    others: Annotated[
        Literal["refuse", "allow"], Meta(description="whoever has a true token that stands for no caller")
    ] = "refuse"


def check_caller(name: str, caller: CallerSettings) -> None:
    """Refuse a name that the audit needs otherwise, and settings by which nobody or anybody would come in."""
    place = f"callers.{name}"
    if not re.fullmatch(_NAME, name) or len(name) > 64:
        raise BadConfiguration(f"callers.`{name}`: a caller's name is letters, digits, `.`, `_`, `@` and `-`.")
    if name in RESERVED:
        raise BadConfiguration(f"{place}: `{name}` means somebody else already.", hint="choose another name")
    if caller.token_env is not None and caller.token_file is not None:
        raise BadConfiguration(f"{place} has both `token_env` and `token_file`.", hint="leave one of them out")
    if not caller.has_token and not caller.has_claims:
        raise BadConfiguration(
            f"{place} has no token: nobody could come in as `{name}`.",
            hint="set token_env or token_file; with [http.oauth] also subjects, clients or scopes",
        )
    check_patterns(caller.tags, caller.tools, place)


def check_patterns(tags: list[str] | None, tools: list[str] | None, place: str) -> None:
    """Refuse what can match nothing."""
    if "" in (tags or ()):
        raise BadConfiguration(f"{place}.tags: a tag is empty.")
    if any(pattern.removeprefix("!") == "" for pattern in tools or ()):
        raise BadConfiguration(f"{place}.tools: a pattern is empty.", hint='write the names, as in "github__*"')


def check_oauth(oauth: OAuthSettings, callers: Mapping[str, CallerSettings]) -> None:
    """Refuse what would let in nobody, or whoever listens on the way."""
    place = "http.oauth"
    for key in ("issuer", "resource"):
        if not getattr(oauth, key):
            raise BadConfiguration(f"{place}.{key} is not set.")
    for key, url in (("issuer", oauth.issuer), ("resource", oauth.resource), ("jwks_url", oauth.jwks_url)):
        if url is not None and not is_trustworthy(url):
            raise BadConfiguration(f"{place}.{key} is no https address.", hint="http is for this machine alone")
    if oauth.jwks_url is not None and oauth.jwks_file is not None:
        raise BadConfiguration(f"{place} has both `jwks_url` and `jwks_file`.", hint="leave one of them out")
    if not oauth.algorithms:
        raise BadConfiguration(f"{place}.algorithms is empty: no token could be true.")
    if oauth.others == "refuse" and not any(caller.has_claims for caller in callers.values()):
        raise BadConfiguration(
            f"{place}: no caller is meant by any token, so nobody could come in.",
            hint='name subjects, clients or scopes in [callers.NAME], or set http.oauth.others = "allow"',
        )


def is_trustworthy(url: str) -> bool:
    """Whether nobody on the way can change what comes from there."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    is_plain = not parts.fragment and not (parts.username or parts.password) and not re.search(r"[\x00-\x20\"\\]", url)
    return is_plain and bool(parts.hostname) and (parts.scheme == "https" or is_local(url))


def is_local(url: str) -> bool:
    """Whether an address is one of this machine."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in _LOCAL


def token_of(name: str, caller: CallerSettings, *, project: Path) -> str | None:
    """Read a caller's token; None for one who comes in by claims alone."""
    if caller.token_env is not None:
        place = f"callers.{name}.token_env"
        token = os.environ.get(caller.token_env, "").strip()
        if not token:
            raise BadConfiguration(
                f"{place} needs the environment variable {caller.token_env}, which is not set.",
                hint="set it before Toolpost starts",
            )
        return _check_token(token, place)
    if caller.token_file is not None:
        place = f"callers.{name}.token_file"
        return _check_token(token_in(project / caller.token_file, place), place)
    return None


def token_in(path: Path, place: str) -> str:
    """Read a file that holds a token and nothing else."""
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadConfiguration(f"{place}: cannot read {path}: {reason}.") from error
    if not token:
        raise BadConfiguration(f"{place}: {path} is empty.")
    return token


def _check_token(token: str, place: str) -> str:
    """Refuse what no client could send in a header."""
    if not _TOKEN.fullmatch(token):
        raise BadConfiguration(
            f"{place}: a token is one word of plain ASCII.",
            hint='python -c "import secrets; print(secrets.token_urlsafe(32))" makes a good one',
        )
    return token
