"""Requests to token and revocation endpoints: one function for each grant, and how a client authenticates in all of them."""

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx2
import jwt
from mcp.client.auth import OAuthTokenError
from mcp.client.auth.extensions.client_credentials import SignedJWTParameters
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import handle_token_response_scopes
from mcp.shared.auth import JWT_BEARER_GRANT_TYPE, OAuthClientInformationFull, OAuthClientMetadata

from toolpost.base.redaction import REDACTED
from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.credentials.authorization_servers import (
    DEVICE_CODE,
    Discovery,
    OAuthFailed,
    configured_registration,
    describe_error,
    read_json,
    read_text,
)
from toolpost.credentials.fetch import Fetcher
from toolpost.credentials.grant import Grant, Registration, TokenTerms
from toolpost.upstreams.spec import AuthSpec

TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 (a name)
_TYPE: Final = "urn:ietf:params:oauth:token-type:"
TOKEN_LIMIT: Final = 16 * 1024
LONGEST_S: Final = 10 * 365 * 86_400
_ACCESS_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750, section 2.1."""
_REFRESH_TOKEN: Final = re.compile(r"[\x20-\x7e]+")
"""RFC 6749, appendix A.17."""
_CLIENT_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_FORM: Final = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}

_ABOUT_CLIENT: Final = frozenset({"invalid_client", "unauthorized_client"})


class TokenRefused(OAuthFailed):
    """The token endpoint refused; `error` is its code, such as `invalid_grant`."""

    def __init__(self, message: str, *, error: str | None, **options: Any) -> None:
        super().__init__(message, **options)
        self.error = error

    @property
    def is_final(self) -> bool:
        """Whether another try with the same tokens cannot succeed."""
        return self.error == "invalid_grant"

    @property
    def is_about_client(self) -> bool:
        """Whether the client was refused, and not its token."""
        return self.error in _ABOUT_CLIENT


async def exchange_code(
    terms: TokenTerms,
    auth: AuthSpec,
    registration: Registration,
    fetcher: Fetcher,
    *,
    code: str,
    verifier: str,
    scope: str | None,
) -> Grant:
    """Exchange an authorization code for tokens."""
    data = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": registration.redirect_uri or "",
        "client_id": registration.client_id,
        "code_verifier": verifier,
    }
    return await _request_grant(terms, auth, registration, fetcher, data, scope=scope)


async def begin_on_device(
    discovery: Discovery, auth: AuthSpec, registration: Registration, fetcher: Fetcher, *, scope: str | None
) -> dict[str, Any]:
    """Ask for the codes of a login on another device (RFC 8628 §3.1); returns the answer as it came."""
    assert discovery.device_endpoint is not None
    data = {"client_id": registration.client_id}
    if scope:
        data["scope"] = scope
    if discovery.resource:
        data["resource"] = discovery.resource
    response = await _send(discovery.device_endpoint, data, auth, registration, fetcher, issuer=discovery.issuer)
    return read_json(response.content)


async def exchange_device_code(
    terms: TokenTerms,
    auth: AuthSpec,
    registration: Registration,
    fetcher: Fetcher,
    *,
    device_code: str,
    scope: str | None,
) -> Grant:
    """Ask once for the tokens of a login on another device; raises `TokenRefused` while there are none."""
    data = {"grant_type": DEVICE_CODE, "device_code": device_code, "client_id": registration.client_id}
    return await _request_grant(terms, auth, registration, fetcher, data, scope=scope)


async def renew(grant: Grant, auth: AuthSpec, fetcher: Fetcher) -> Grant:
    """Use the refresh token, with the registration that it was issued to; raises `TokenRefused` or `UpstreamUnavailable`."""
    assert grant.refresh_token is not None
    registration = _with_current_secret(grant.registration, auth)
    data = {
        "grant_type": "refresh_token",
        "refresh_token": grant.refresh_token,
        "client_id": registration.client_id,
    }
    return await _request_grant(
        grant.terms, auth, registration, fetcher, data, scope=grant.scope, refresh_token=grant.refresh_token
    )


async def obtain(discovery: Discovery, auth: AuthSpec, fetcher: Fetcher, *, scope: str | None) -> Grant:
    """Get tokens by a grant that needs no person."""
    registration = configured_registration(discovery, auth, redirect_uri=None) if auth.client_id else None
    if auth.type == "client_credentials":
        if registration is None:
            raise OAuthFailed('`auth.type = "client_credentials"` needs `auth.client_id`')
        data = {"grant_type": "client_credentials"}
    elif auth.type == "token_exchange":
        data = _exchange_parameters(auth, "access_token")
    else:
        assertion = await _get_assertion(discovery, auth, fetcher)
        data = {"grant_type": JWT_BEARER_GRANT_TYPE, "assertion": assertion}
    if registration is None:
        # A workload is known by its assertion alone.
        registration = Registration(client_id="", auth_method="none", issuer=discovery.issuer)
    elif registration.auth_method == "none" or auth.type != "client_credentials":
        data["client_id"] = registration.client_id
    if scope:
        data["scope"] = scope
    return await _request_grant(discovery.terms, auth, registration, fetcher, data, scope=scope)


async def _get_assertion(discovery: Discovery, auth: AuthSpec, fetcher: Fetcher) -> str:
    """Return the JWT for the JWT bearer grant: as configured, or an ID-JAG that the identity provider issues (SEP-990)."""
    if auth.type == "jwt_bearer":
        if not auth.assertion:
            raise OAuthFailed('`auth.type = "jwt_bearer"` needs `auth.assertion`')
        return auth.assertion
    if not auth.idp_token_url:
        raise OAuthFailed('`auth.type = "id_jag"` needs `auth.idp_token_url`')
    data = _exchange_parameters(auth, "id_token") | {
        "requested_token_type": f"{_TYPE}id-jag",
        # For whom the assertion is: exactly this authorization server, and this resource.
        "audience": auth.audience or discovery.issuer,
    }
    if discovery.resource:
        data["resource"] = discovery.resource
    if auth.idp_client_id:
        data["client_id"] = auth.idp_client_id
    client = Registration(
        client_id=auth.idp_client_id or "",
        client_secret=auth.idp_client_secret,
        auth_method="client_secret_post" if auth.idp_client_secret else "none",
        issuer=auth.idp_token_url,
    )
    response = await _send(auth.idp_token_url, data, auth, client, fetcher, issuer=auth.idp_token_url)
    try:
        assertion = response.json()["access_token"]
    except (ValueError, KeyError, TypeError):
        assertion = None
    if not isinstance(assertion, str):
        raise OAuthFailed("The identity provider's answer has no assertion")
    return assertion


def _exchange_parameters(auth: AuthSpec, default_type: str) -> dict[str, str]:
    if not auth.subject_token:
        raise OAuthFailed(f'`auth.type = "{auth.type}"` needs `auth.subject_token`')
    kind = auth.subject_token_type or default_type
    data = {
        "grant_type": TOKEN_EXCHANGE,
        "subject_token": auth.subject_token,
        "subject_token_type": kind if ":" in kind else f"{_TYPE}{kind}",
    }
    return data | {"audience": auth.audience} if auth.audience else data


async def revoke(grant: Grant, auth: AuthSpec, fetcher: Fetcher) -> bool:
    """Revoke the tokens at the authorization server (RFC 7009); False if it has no endpoint for that, or refuses."""
    if grant.terms.revocation_endpoint is None:
        return False
    registration = _with_current_secret(grant.registration, auth)
    is_revoked = True
    # The refresh token first: with it goes the whole grant.
    for hint, token in (("refresh_token", grant.refresh_token), ("access_token", grant.access_token)):
        if token:
            data = {"token": token, "token_type_hint": hint, "client_id": registration.client_id}
            try:
                await _send(
                    grant.terms.revocation_endpoint, data, auth, registration, fetcher, issuer=grant.terms.issuer
                )
            except TokenRefused as refusal:
                # Many providers cannot revoke an access token that is a JWT (RFC 7009, 2.2.1): it ends when it expires, and
                # without its refresh token no other one follows.
                is_unsupported = hint == "access_token" and refusal.error == "unsupported_token_type"
                is_revoked = is_revoked and is_unsupported and bool(grant.refresh_token)
            except UpstreamUnavailable:
                is_revoked = False
    return is_revoked


def _with_current_secret(registration: Registration, auth: AuthSpec) -> Registration:
    """Use the secret of the settings for the client of the settings: it may have been replaced since the login."""
    is_same = auth.client_id == registration.client_id and auth.issuer in (None, registration.issuer)
    if not is_same or auth.client_secret is None:
        return registration
    return Registration(
        client_id=registration.client_id,
        client_secret=auth.client_secret,
        auth_method=registration.auth_method,
        issuer=registration.issuer,
        redirect_uri=registration.redirect_uri,
    )


async def _request_grant(
    terms: TokenTerms,
    auth: AuthSpec,
    registration: Registration,
    fetcher: Fetcher,
    data: dict[str, str],
    *,
    scope: str | None,
    refresh_token: str | None = None,
) -> Grant:
    if terms.resource:
        data = {**data, "resource": terms.resource}
    asked_at = time.time()
    response = await _send(terms.token_endpoint, data, auth, registration, fetcher, issuer=terms.issuer)
    try:
        token = await handle_token_response_scopes(response)
    except OAuthTokenError:
        # Without its text, which quotes the response.
        raise OAuthFailed("The authorization server's answer has no usable access token") from None
    _check_tokens(token.access_token, token.refresh_token)
    return Grant(
        access_token=token.access_token,
        # A server that does not rotate refresh tokens leaves them out.
        refresh_token=token.refresh_token or refresh_token,
        # The number is the server's, and may have any size.
        expires_at=asked_at + min(token.expires_in, LONGEST_S) if token.expires_in is not None else None,
        obtained_at=asked_at,
        scope=token.scope or scope,
        terms=terms,
        registration=registration,
    )


def _check_tokens(access: str, refresh: str | None) -> None:
    """Raise `OAuthFailed` for tokens that cannot be sent: an access token is part of a header."""
    if len(access) > TOKEN_LIMIT or not _ACCESS_TOKEN.fullmatch(access):
        what = "an access token that cannot be sent"
    elif refresh and (len(refresh) > TOKEN_LIMIT or not _REFRESH_TOKEN.fullmatch(refresh)):
        what = "a refresh token that cannot be used"
    else:
        return
    raise OAuthFailed(
        f"The authorization server's answer has {what}",
        hint=f"tokens have the characters of RFC 6750 and RFC 6749, and at most {TOKEN_LIMIT // 1024} KB",
    )


async def _send(
    endpoint: str, data: Mapping[str, str], auth: AuthSpec, registration: Registration, fetcher: Fetcher, *, issuer: str
) -> httpx2.Response:
    form, headers = await _authenticate(dict(data), auth, registration, issuer)
    response = await fetcher.send(httpx2.Request("POST", endpoint, data=form, headers=_FORM | headers))
    if response.status_code in (200, 201):
        return response
    error = read_text(response.content, "error")
    said = describe_error(response)
    for secret in (*form.values(), registration.client_secret):
        if (
            secret
            and len(secret) >= 6
            and secret not in (form.get("grant_type"), form.get("scope"), form.get("resource"))
        ):
            said = said.replace(secret, REDACTED)
    message = f"The authorization server {issuer[:200]} answered with HTTP {response.status_code}: {said}"
    if response.status_code >= 500 or response.status_code == 429:
        retry_after = _read_retry_after(response.headers.get("retry-after", ""))
        unavailable = UpstreamUnavailable(message, hint="try again later", **retry_after)
        # As far as it matters: a server that failed has not replaced a refresh token.
        unavailable.was_sent = False
        raise unavailable
    raise TokenRefused(message, error=error)


def _read_retry_after(header: str) -> dict[str, Any]:
    """Read a `Retry-After` header, in seconds or as a date, as the detail of an error; nothing if it is neither."""
    if header.isascii() and header.isdecimal() and len(header) < 10:
        return {"retryAfterMs": int(header) * 1000}
    try:
        return {"retryAfterMs": max(0, round((parsedate_to_datetime(header).timestamp() - time.time()) * 1000))}
    except (ValueError, OverflowError):
        return {}


async def _authenticate(
    data: dict[str, str], auth: AuthSpec, registration: Registration, issuer: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Add the client's authentication to the form, or make a header for it."""
    if registration.auth_method == "private_key_jwt":
        # RFC 7523 §2.2; the audience is the issuer, so that no other server can use the assertion.
        signer = SignedJWTParameters(
            issuer=registration.client_id,
            subject=registration.client_id,
            signing_key=auth.private_key or "",
            signing_algorithm=auth.signing_algorithm or _algorithm_of(auth.private_key or ""),
        )
        try:
            assertion = await signer.create_assertion_provider()(issuer)
        except (jwt.PyJWTError, ValueError, TypeError):
            # Without its text, which may quote the key.
            raise OAuthFailed(
                "`auth.private_key` cannot sign", hint="it must be a PEM, and fit `auth.signing_algorithm`"
            ) from None
        return data | {"client_assertion_type": _CLIENT_ASSERTION, "client_assertion": assertion}, {}
    if not registration.client_id:
        return data, {}
    context = OAuthContext(
        server_url=issuer,
        client_metadata=OAuthClientMetadata(redirect_uris=None),
        storage=None,  # type: ignore[arg-type] # Not used to prepare a request.
        redirect_handler=None,
        callback_handler=None,
        client_info=OAuthClientInformationFull(
            client_id=registration.client_id,
            client_secret=registration.client_secret,
            token_endpoint_auth_method=registration.auth_method,
        ),
    )
    try:
        return context.prepare_token_auth(data, {})
    except OAuthTokenError as error:
        raise OAuthFailed(str(error)) from error


def _algorithm_of(pem: str) -> str:
    """Return the usual algorithm for a key; RS256 for one that cannot be read, which fails when it signs."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError):
        return "RS256"
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return {256: "ES256", 384: "ES384", 521: "ES512"}.get(key.curve.key_size, "ES256")
    return "EdDSA" if isinstance(key, ed25519.Ed25519PrivateKey) else "RS256"
