"""Which authorization server a server uses, and as which client the gateway is known there.

Discovery starts at the challenge of a 401 (`WWW-Authenticate`), goes on with the protected resource metadata (RFC 9728) and ends
with the authorization server's own (RFC 8414, or OpenID Connect Discovery). A client id comes from the settings, else it is the
URL of a metadata document (CIMD), else the gateway registers (RFC 7591).

URLs are compared as the texts that they are: the SDK's models parse them, and two texts that parse alike are two issuers. So
issuers are read from the JSON itself.
"""

import time
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import msgspec
from mcp.client.auth import OAuthFlowError, OAuthRegistrationError
from mcp.client.auth.oauth2 import check_registration_usable
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    create_client_registration_request,
    create_oauth_metadata_request,
    get_client_metadata_scopes,
    handle_auth_metadata_response,
    handle_protected_resource_response,
    handle_registration_response,
    issuers_match,
    should_use_client_metadata_url,
)
from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import AnyUrl, ValidationError

from toolpost.base.urls import LIMIT as URL_LIMIT
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.credentials.challenge import Challenge
from toolpost.credentials.fetch import Fetcher
from toolpost.credentials.grant import Registration, TokenTerms
from toolpost.upstreams.spec import AuthSpec

CLIENT_NAME: Final = "Toolpost"
LATEST: Final = 10**11
"""The last time that is told apart from never: the number of a server may have any size."""

DEVICE_CODE: Final = "urn:ietf:params:oauth:grant-type:device_code"
_GRANTS: Final = ["authorization_code", "refresh_token"]
_TEMPORARY: Final = frozenset({408, 425, 429})


class OAuthFailed(UpstreamUnavailable):
    """The server's authorization cannot be used as it is."""


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """The authorization server of a server."""

    issuer: str
    """As text, for comparisons."""
    metadata: OAuthMetadata | None
    """None for a server of 2025-03-26 whose endpoints have their default paths."""
    resource: str | None
    """The resource indicator to send; None for none."""
    scopes_supported: tuple[str, ...] | None
    """Of the protected resource."""
    device_endpoint: str | None = None
    """Where a login on another device begins (RFC 8628); None if it offers none."""
    url: str
    """Of the MCP server."""

    @property
    def base_url(self) -> str:
        """The origin of the MCP server, where default paths begin."""
        return _origin_of(self.url)

    @property
    def authorization_endpoint(self) -> str:
        return str(self.metadata.authorization_endpoint) if self.metadata else f"{self.base_url}/authorize"

    @property
    def token_endpoint(self) -> str:
        return str(self.metadata.token_endpoint) if self.metadata else f"{self.base_url}/token"

    @property
    def terms(self) -> TokenTerms:
        revocation = self.metadata.revocation_endpoint if self.metadata else None
        return TokenTerms(
            url=self.url,
            issuer=self.issuer,
            token_endpoint=self.token_endpoint,
            revocation_endpoint=str(revocation) if revocation else None,
            resource=self.resource,
        )

    @property
    def auth_methods(self) -> list[str]:
        """How clients may authenticate at the token endpoint; the default of RFC 8414 where nothing is said."""
        found = self.metadata.token_endpoint_auth_methods_supported if self.metadata else None
        return found or ["client_secret_basic"]


async def discover(url: str, auth: AuthSpec, challenge: Challenge | None, fetcher: Fetcher) -> Discovery:
    """Find the authorization server of the server at `url`; raises `OAuthFailed` or `UpstreamUnavailable`."""
    if auth.authorization_url is not None and auth.token_url is not None:
        return await _use_configured(url, auth, fetcher)
    resource_metadata, named = await _find_resource_metadata(url, challenge, fetcher)
    if auth.issuer is not None and named and auth.issuer not in named:
        raise OAuthFailed(
            f"The server names another authorization server ({named[0][:200]}) than `auth.issuer`",
            hint="set `auth.issuer` to the one that the server names, exactly as written there, or leave it out",
        )
    issuer = auth.issuer or (named[0] if named else None)
    issuer, metadata, device_endpoint = await _find_server_metadata(issuer, url, fetcher)
    scopes = resource_metadata.scopes_supported if resource_metadata else None
    return Discovery(
        issuer=issuer,
        metadata=metadata,
        resource=_choose_resource(url, auth, resource_metadata),
        scopes_supported=tuple(scopes) if scopes is not None else None,
        device_endpoint=device_endpoint,
        url=url,
    )


async def _use_configured(url: str, auth: AuthSpec, fetcher: Fetcher) -> Discovery:
    """Return the endpoints that the operator has set, of an authorization server that publishes no metadata."""
    issuer = auth.issuer or _origin_of(auth.token_url or "")
    metadata = OAuthMetadata.model_validate(
        {"issuer": issuer, "authorization_endpoint": auth.authorization_url, "token_endpoint": auth.token_url}
    )
    await _check_endpoints(metadata, fetcher)
    resource = auth.resource or None
    return Discovery(issuer=issuer, metadata=metadata, resource=resource, scopes_supported=None, url=url)


async def _find_resource_metadata(
    url: str, challenge: Challenge | None, fetcher: Fetcher
) -> tuple[ProtectedResourceMetadata | None, list[str]]:
    """Return the metadata of RFC 9728, and the issuers in it as texts; None and none if the server has none."""
    failed: int | None = None
    named = challenge.resource_metadata if challenge else None
    for place in build_protected_resource_metadata_discovery_urls(named, url):
        response = await fetcher.send(create_oauth_metadata_request(place))
        if response.status_code >= 500 or response.status_code in _TEMPORARY:
            failed = response.status_code
        metadata = await handle_protected_resource_response(response)
        if metadata is None:
            continue
        own = resource_url_from_server_url(url)
        if not check_resource_allowed(requested_resource=own, configured_resource=str(metadata.resource)):
            raise OAuthFailed(
                f"The server's metadata is about another resource ({str(metadata.resource)[:200]}) than its `url`",
                hint="use the URL of the server as its provider writes it",
            )
        return metadata, _read_texts(response.content, "authorization_servers")
    if failed is not None:
        # An error says nothing about whether there is metadata: guessing the authorization server would be wrong.
        raise UpstreamUnavailable(f"its metadata cannot be read (HTTP {failed})")
    return None, []


async def _find_server_metadata(
    issuer: str | None, url: str, fetcher: Fetcher
) -> tuple[str, OAuthMetadata | None, str | None]:
    """Return the issuer, its metadata, and the device authorization endpoint, which the SDK's model leaves out."""
    base_url = _origin_of(url)
    for place in build_oauth_authorization_server_metadata_discovery_urls(issuer, url):
        response = await fetcher.send(create_oauth_metadata_request(place))
        go_on, metadata = await handle_auth_metadata_response(response)
        if metadata is not None:
            stated = (read_text(response.content, "issuer") or "")[:URL_LIMIT]
            # Exactly as text (RFC 8414 §3.3). Of a server without resource metadata only the origin is known, and whether a
            # slash ends that is not.
            if stated != issuer and not (issuer is None and issuers_match(stated, base_url)):
                raise OAuthFailed(
                    f"The authorization server's metadata names another issuer ({stated[:200]}) than expected"
                    f" ({issuer or base_url})",
                    hint="set `auth.issuer` to the issuer that its metadata names, if you trust that one",
                )
            await _check_endpoints(metadata, fetcher)
            return stated, metadata, read_text(response.content, "device_authorization_endpoint")
        if not go_on:
            raise UpstreamUnavailable(f"its authorization server answers with HTTP {response.status_code}")
    if issuer is not None:
        raise OAuthFailed(
            f"The authorization server {issuer[:200]} publishes no metadata",
            hint="check `auth.issuer`, or whether the server's provider supports OAuth for MCP",
        )
    # The specification of 2025-03-26 has default paths.
    return base_url, None, None


def _origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


async def _check_endpoints(metadata: OAuthMetadata, fetcher: Fetcher) -> None:
    endpoints = (
        metadata.authorization_endpoint,
        metadata.token_endpoint,
        metadata.registration_endpoint,
        metadata.revocation_endpoint,
    )
    for endpoint in endpoints:
        if endpoint is not None:
            await fetcher.check(str(endpoint))


def _choose_resource(url: str, auth: AuthSpec, metadata: ProtectedResourceMetadata | None) -> str | None:
    if auth.resource is not None:
        return auth.resource or None
    return str(metadata.resource) if metadata is not None else resource_url_from_server_url(url)


async def check_page(url: str, fetcher: Fetcher) -> None:
    """Raise `OAuthFailed` or `UnsafeUrl` for a page that a person must not be sent to."""
    await fetcher.check(url)
    if "@" in urlsplit(url).netloc:
        # `https://accounts.example@evil.example` looks like the wrong one of the two.
        raise OAuthFailed(
            "The authorization server names a login page with a user name in its URL",
            hint="do not log in there: such a URL looks like that of another site",
        )


def check_pkce(discovery: Discovery, auth: AuthSpec) -> None:
    """Raise `OAuthFailed` unless the authorization server supports PKCE with S256: without it a stolen code can be used."""
    if discovery.metadata is None or auth.assume_pkce:
        return
    methods = discovery.metadata.code_challenge_methods_supported
    if methods is None or "S256" not in methods:
        said = "says nothing about PKCE" if methods is None else "does not support PKCE with S256"
        raise OAuthFailed(
            f"The authorization server {discovery.issuer[:200]} {said}",
            hint="if it does support it and only does not say so, set `auth.assume_pkce = true` for this server",
        )


def choose_scopes(discovery: Discovery, auth: AuthSpec, challenge: Challenge | None) -> str | None:
    """Return the scopes to ask for, None to leave them to the authorization server."""
    if auth.scopes is not None:
        return " ".join(auth.scopes) or None
    challenged = challenge.scope if challenge else None
    if challenged is None and discovery.scopes_supported is None:
        return None
    selected = challenged if challenged is not None else " ".join(discovery.scopes_supported or ())
    return get_client_metadata_scopes(selected, None, discovery.metadata, _GRANTS if auth.needs_person else []) or None


async def register(
    discovery: Discovery,
    auth: AuthSpec,
    fetcher: Fetcher,
    *,
    redirect_uri: str | None,
    known: Registration | None,
    scope: str | None,
) -> Registration:
    """Return the client to log in as: of the settings, by metadata document, the known one, or a new one.

    `redirect_uri` is None for a login on another device, which has no redirect.
    """
    if auth.client_id is not None:
        return configured_registration(discovery, auth, redirect_uri=redirect_uri)
    if should_use_client_metadata_url(discovery.metadata, auth.client_metadata_url):
        assert auth.client_metadata_url is not None
        return Registration(
            client_id=auth.client_metadata_url,
            auth_method="none",
            issuer=discovery.issuer,
            redirect_uri=redirect_uri,
        )
    if known is not None and _is_reusable(known, discovery, redirect_uri):
        return known
    if discovery.metadata is not None and discovery.metadata.registration_endpoint is None:
        raise OAuthFailed(
            f"The authorization server {discovery.issuer[:200]} does not let clients register themselves",
            hint=_make_client_hint(redirect_uri),
        )
    return await _register_dynamically(discovery, fetcher, redirect_uri=redirect_uri, scope=scope)


def _make_client_hint(redirect_uri: str | None) -> str:
    need = f"with the redirect URI {redirect_uri}" if redirect_uri else "that may log in on another device"
    return f"register a client there {need}, and set `auth.client_id` of this server"


def _is_reusable(known: Registration, discovery: Discovery, redirect_uri: str | None) -> bool:
    """Whether the gateway is still known as this client: at the same authorization server, which never gets that of another."""
    is_expired = known.secret_expires_at is not None and known.secret_expires_at <= time.time()
    return (
        known.is_dynamic and not is_expired and known.issuer == discovery.issuer and known.redirect_uri == redirect_uri
    )


def configured_registration(discovery: Discovery, auth: AuthSpec, *, redirect_uri: str | None) -> Registration:
    """Return the client of the settings, which must have an id."""
    if auth.client_id is None:
        raise OAuthFailed(f'`auth.type = "{auth.type}"` needs `auth.client_id`')
    return Registration(
        client_id=auth.client_id,
        client_secret=auth.client_secret,
        auth_method=auth.client_auth or _choose_method(discovery, auth),
        issuer=discovery.issuer,
        redirect_uri=redirect_uri,
    )


def _choose_method(discovery: Discovery, auth: AuthSpec) -> str:
    if auth.private_key is not None:
        return "private_key_jwt"
    if auth.client_secret is None:
        return "none"
    return _choose_secret_method(discovery)


def _choose_secret_method(discovery: Discovery) -> str:
    methods = discovery.auth_methods
    is_post_only = "client_secret_post" in methods and "client_secret_basic" not in methods
    return "client_secret_post" if is_post_only else "client_secret_basic"


async def _register_dynamically(
    discovery: Discovery, fetcher: Fetcher, *, redirect_uri: str | None, scope: str | None
) -> Registration:
    # A client without a secret if that is possible: a secret that everyone can register for protects nothing.
    method: Any = "none" if "none" in discovery.auth_methods else _choose_secret_method(discovery)
    is_native = redirect_uri is None or urlsplit(redirect_uri).hostname in ("127.0.0.1", "::1", "localhost")
    asked = OAuthClientMetadata(
        client_name=CLIENT_NAME,
        redirect_uris=[AnyUrl(redirect_uri)] if redirect_uri else None,
        response_types=["code"] if redirect_uri else [],
        grant_types=list(_GRANTS) if redirect_uri else [DEVICE_CODE, "refresh_token"],
        token_endpoint_auth_method=method,
        application_type="native" if is_native else "web",
        scope=scope,
    )
    request = create_client_registration_request(discovery.metadata, asked, discovery.base_url)
    response = await fetcher.send(request)
    try:
        client = await handle_registration_response(response)
        check_registration_usable(client)
    except (OAuthRegistrationError, OAuthFlowError, ValidationError):
        # Without its text, which quotes the response: that may have a client secret in it.
        raise OAuthFailed(
            f"The authorization server {discovery.issuer[:200]} refuses to register a client"
            f" (HTTP {response.status_code}): {describe_error(response)}",
            hint=_make_client_hint(redirect_uri),
        ) from None
    secret_method = _choose_secret_method(discovery) if client.client_secret else "none"
    return Registration(
        client_id=client.client_id,
        client_secret=client.client_secret,
        auth_method=client.token_endpoint_auth_method or secret_method,
        issuer=discovery.issuer,
        redirect_uri=redirect_uri,
        is_dynamic=True,
        secret_expires_at=float(min(client.client_secret_expires_at or 0, LATEST)) or None,
    )


def describe_error(response: httpx2.Response) -> str:
    """Return the error of an OAuth response (RFC 6749 §5.2) in its own words, shortened."""
    error, description = read_text(response.content, "error"), read_text(response.content, "error_description")
    text = f"{error}: {description}" if error and description else error or description or "it does not say why"
    return "".join(c for c in text if c.isprintable())[:300]


def read_json(content: bytes) -> dict[str, Any]:
    """Parse a JSON object; empty for anything else."""
    try:
        value: Any = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_text(content: bytes, name: str) -> str | None:
    """Return a member of a JSON object, None if it is not text or this is no object."""
    value = read_json(content).get(name)
    return value if isinstance(value, str) else None


def _read_texts(content: bytes, name: str) -> list[str]:
    value = read_json(content).get(name)
    texts = value if isinstance(value, list) else ()
    # The SDK parses them, and a long URL takes long.
    return [each for each in texts if isinstance(each, str) and len(each) <= URL_LIMIT]
