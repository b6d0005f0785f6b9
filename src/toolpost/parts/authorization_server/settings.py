"""`[login]`: the authorization server of this gateway."""

from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from toolpost.contracts import BadConfiguration
from toolpost.parts import Section
from toolpost.settings import ADVANCED, SECRET, Config, is_trustworthy, read_secret


class ProviderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An OpenID Connect provider whose people may log in; `[callers.NAME]` with its `issuer` says who they are."""

    issuer: Annotated[str, Meta(description="the provider, exactly as in its metadata; without it there is none")] = ""
    client_id: Annotated[str, Meta(description="the client id of this gateway at the provider")] = ""
    client_secret: Annotated[str | None, Meta(description="its secret, such as `${CLIENT_SECRET}`", extra=SECRET)] = (
        None
    )
    scopes: Annotated[
        list[str],
        Meta(
            description="scopes that the provider is asked for",
            extra_json_schema={"default": ["openid", "profile"]},
            extra=ADVANCED,
        ),
    ] = msgspec.field(default_factory=lambda: ["openid", "profile"])


class LoginSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Login in the browser for MCP clients: an authorization server for the people in `[callers]`."""

    enabled: Annotated[
        bool | None, Meta(description="let clients log in at this gateway; required with other settings of `[login]`")
    ] = None
    registration: Annotated[bool, Meta(description="let clients register themselves (RFC 7591)", extra=ADVANCED)] = True
    client_documents: Annotated[
        bool, Meta(description="accept client ids that are the URL of a document about the client", extra=ADVANCED)
    ] = True
    access_s: Annotated[int, Meta(ge=5, le=86_400, description="how long an access token is valid", extra=ADVANCED)] = (
        3600
    )
    login_s: Annotated[
        int,
        Meta(
            ge=60,
            le=31_536_000,
            description="how long after a login its tokens end, however often they are refreshed",
            extra=ADVANCED,
        ),
    ] = 604_800
    provider: ProviderSettings = ProviderSettings()


LOGIN: Final = Section(name="login", struct=LoginSettings, default=LoginSettings())


def find_url(config: Config) -> str:
    """Return the public URL of the gateway, without a slash at its end; where it listens, if `http.public_url` is not set."""
    if url := (config.http.public_url or "").rstrip("/"):
        return url
    host, port = config.address
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def check_login(config: Config) -> None:
    """Raise `BadConfiguration` for settings with which no one could log in, or that could be intercepted."""
    settings = LOGIN.of(config)
    url = find_url(config)
    if not is_trustworthy(url):
        raise BadConfiguration(
            f"http.public_url: `{url}` must be an https URL for [login].", hint="http is allowed for this machine only"
        )
    if urlsplit(url).path or urlsplit(url).query:
        raise BadConfiguration(
            f"http.public_url: `{url}` must be a URL without a path for [login].", hint="leave `/mcp` out"
        )
    provider = settings.provider
    if provider.issuer:
        if not is_trustworthy(provider.issuer):
            raise BadConfiguration(
                "login.provider.issuer must be an https URL.", hint="http is allowed for this machine only"
            )
        if not provider.client_id:
            raise BadConfiguration(
                "login.provider.client_id is not set.",
                hint=f"register this gateway there, with the redirect URI {url}/authorize/callback",
            )
    elif provider != ProviderSettings():
        raise BadConfiguration(
            "login.provider.issuer is not set: the provider would not be asked.",
            hint="set it, or remove [login.provider]",
        )
    people = [caller for caller in config.callers.values() if caller.has_passphrase or caller.has_token]
    theirs = [c for c in config.callers.values() if provider.issuer and c.issuer == provider.issuer]
    if not people and not theirs:
        raise BadConfiguration(
            "login: no caller could log in.",
            hint="set passphrase_hash in [callers.NAME] (`toolpost auth passphrase` makes one), or map people of login.provider",
        )


def read_client_secret(config: Config) -> str | None:
    """Read the secret of this gateway at the OpenID Connect provider; None for a public client."""
    provider = LOGIN.of(config).provider
    if provider.client_secret is None:
        return None
    return read_secret(provider.client_secret, project=Path(config.project), place="login.provider.client_secret")
