"""People of an OpenID Connect provider: the browser is sent there and comes back with a code, for which we get an ID token.

State, nonce and PKCE verifier belong together: nonce and verifier are derived from the state with a key of the store, so that
none of them is stored. The state itself is stored as a hash, with the request and the browser that it was made for.
"""

import base64
import hashlib
import hmac
import time
from typing import Any, Final
from urllib.parse import quote, urlencode

import httpx2
import msgspec

from toolpost import Forbidden, UpstreamUnavailable
from toolpost.base import JsonObject
from toolpost.credentials import Fetcher
from toolpost.endpoints.http import Claims, IdTokens, Refused
from toolpost.net import Network
from toolpost.parts.authorization_server.records import Identity
from toolpost.parts.authorization_server.settings import ProviderSettings

CALLBACK_PATH: Final = "/authorize/callback"
METADATA_S: Final = 3600.0
CLAIMS_LIMIT: Final = 16 * 1024

_NOT_KEPT: Final = frozenset({"nonce", "at_hash", "c_hash", "s_hash", "exp", "iat", "auth_time", "jti", "sid"})


class ProviderFailed(Exception):
    """The provider did not say who the person is. The message is for the person, and has no secret in it."""


class OpenIdProvider:
    """One OpenID Connect provider, of which this gateway is a client: for logins of clients, and for people of the console."""

    def __init__(
        self, settings: ProviderSettings, secret: str | None, *, url: str, key: bytes, network: Network
    ) -> None:
        self.issuer: str = settings.issuer
        self.url: str = url
        self._settings = settings
        self._secret = secret
        self._key = key
        self._id_tokens = IdTokens(settings.issuer, settings.client_id, network)
        self._fetcher = Fetcher([settings.issuer], network)
        self._metadata: JsonObject = {}
        self._fetched_at = float("-inf")

    async def begin(self, state: str, *, callback: str, is_fresh: bool) -> str:
        """See `PersonProvider` of the kernel, as for `finish`."""
        try:
            return await self.start(state, callback=callback, is_fresh=is_fresh)
        except ProviderFailed as error:
            raise Forbidden(f"{error}.") from error

    async def finish(self, code: str, state: str, *, issuer: str | None, callback: str) -> Claims:
        try:
            found = await self._find_claims(code, state, issuer, callback)
        except ProviderFailed as error:
            raise Forbidden(f"{error}.") from error
        return Claims(
            subject=found["sub"], client=None, scopes=frozenset(), expires_at=0.0, issuer=self.issuer, all=found
        )

    async def start(self, state: str, *, callback: str = CALLBACK_PATH, is_fresh: bool = False) -> str:
        """Return the address at the provider where a person logs in; raises `ProviderFailed`."""
        endpoint = await self._find_endpoint("authorization_endpoint")
        challenge = _encode(hashlib.sha256(self._derive("verifier", state).encode()).digest())
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": f"{self.url}{callback}",
            "scope": " ".join(self._settings.scopes),
            "state": state,
            "nonce": self._derive("nonce", state),
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        if is_fresh:
            # `max_age` has it say in `auth_time` when that was. A provider may know one of the two alone.
            query |= {"prompt": "login", "max_age": "0"}
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def identify(self, code: str, state: str, issuer: str | None) -> Identity:
        """Return who has logged in at the provider; raises `ProviderFailed`."""
        claims = await self._find_claims(code, state, issuer, CALLBACK_PATH)
        kept = {name: value for name, value in claims.items() if name not in _NOT_KEPT}
        if len(msgspec.json.encode(kept)) > CLAIMS_LIMIT:
            raise ProviderFailed("The provider says more about you than can be kept")
        return Identity(issuer=self.issuer, claims=kept)

    async def _find_claims(self, code: str, state: str, issuer: str | None, callback: str) -> JsonObject:
        # RFC 9207, as exact text: an answer of another provider must not be taken for one of this.
        if issuer is not None and issuer != self.issuer:
            raise ProviderFailed("The answer is from another provider")
        token = (await self._exchange(code, state, callback)).get("id_token")
        if not isinstance(token, str):
            raise ProviderFailed("The provider did not say who you are")
        try:
            claims = await self._id_tokens.verify(token.encode())
        except Refused as error:
            raise ProviderFailed(f"The provider's answer cannot be used: {error}") from error
        if not hmac.compare_digest(str(claims.get("nonce", "")), self._derive("nonce", state)):
            raise ProviderFailed("The provider's answer is for another login")
        if claims.get("azp", self._settings.client_id) != self._settings.client_id or "sub" not in claims:
            raise ProviderFailed("The provider's answer is for another client")
        return claims

    async def _exchange(self, code: str, state: str, callback: str) -> JsonObject:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": f"{self.url}{callback}",
            "client_id": self._settings.client_id,
            "code_verifier": self._derive("verifier", state),
        }
        headers = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}
        if self._secret is not None:
            pair = f"{quote(self._settings.client_id, safe='')}:{quote(self._secret, safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        endpoint = await self._find_endpoint("token_endpoint")
        request = httpx2.Request("POST", endpoint, content=urlencode(form).encode(), headers=headers)
        try:
            response = await self._fetcher.send(request)
            if response.status_code != 200:
                raise ProviderFailed(f"The provider did not accept the login ({response.status_code})")
            return msgspec.json.decode(response.content, type=dict)
        except (UpstreamUnavailable, msgspec.DecodeError) as error:
            raise ProviderFailed("The provider cannot be reached now: try again") from error

    async def _find_endpoint(self, name: str) -> str:
        try:
            if time.monotonic() - self._fetched_at > METADATA_S:
                self._metadata = await self._id_tokens.discover()
                self._fetched_at = time.monotonic()
            found: Any = self._metadata.get(name)
            await self._fetcher.check(str(found))
        except (UpstreamUnavailable, ValueError) as error:
            raise ProviderFailed("The provider cannot be reached now: try again") from error
        return str(found)

    def _derive(self, purpose: str, state: str) -> str:
        return _encode(hmac.digest(self._key, f"{purpose} {state}".encode(), "sha256"))


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
