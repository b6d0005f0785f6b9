"""The signing keys of an authorization server: read from a file, or fetched, cached, and fetched again when a token names an
unknown one.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import anyio
import httpx2
import jwt
import msgspec

from toolpost.base import JsonObject, event
from toolpost.contracts.errors import ErrorCode, UpstreamUnavailable
from toolpost.credentials.fetch import Fetcher
from toolpost.endpoints.auth.oauth_rules import IssuerRules
from toolpost.endpoints.http.refusal import Refused

_log = logging.getLogger("toolpost.oauth")

FRESH_S: Final = 300.0
"""Age in seconds from which fetched keys are fetched again."""

KEPT_S: Final = 86_400.0
"""How long they are used while the authorization server cannot be reached."""

GAP_S: Final = 30.0
"""Least time between two fetches: tokens with invented key ids must not cause requests."""

FETCH_S: Final = 10.0

_SIGNING: Final = frozenset({"RSA", "EC", "OKP"})


class SigningKeys:
    """The current keys of one authorization server."""

    def __init__(self, rules: IssuerRules) -> None:
        self._rules = rules
        self._keys: Sequence[JsonObject] = ()
        self._at = float("-inf")
        self._tried_at = float("-inf")
        self._lock = anyio.Lock()
        self._fetcher = Fetcher(filter(None, [rules.issuer, rules.jwks_url]), rules.network)
        self._parsed = lru_cache(maxsize=64)(self._parse)

    async def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        """Return the key that a token names; None if the issuer does not have it. Raises `Refused` (503) without usable keys."""
        if time.monotonic() - self._at > FRESH_S:
            await self._fetch()
        if (key := self._find_cached(kid, algorithm)) is None:
            await self._fetch()
            key = self._find_cached(kid, algorithm)
        if not self._keys or time.monotonic() - self._at > KEPT_S:
            raise Refused(
                503,
                ErrorCode.UPSTREAM_UNAVAILABLE,
                "The keys of the authorization server cannot be fetched now: try again",
            )
        return key

    def _find_cached(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        candidates = [number for number, key in enumerate(self._keys) if kid is None or key.get("kid") == kid]
        usable = [key for number in candidates if (key := self._parsed(number, algorithm)) is not None]
        # Without a `kid` there must be exactly one key of this algorithm.
        return usable[0] if len(usable) == 1 else None

    def _parse(self, number: int, algorithm: str) -> jwt.PyJWK | None:
        jwk = self._keys[number]
        if jwk.get("alg", algorithm) != algorithm:
            return None
        try:
            return jwt.PyJWK(jwk, algorithm=algorithm)
        except jwt.PyJWTError:
            return None

    def _store(self, document: Any) -> None:
        keys = document.get("keys") if isinstance(document, Mapping) else None
        usable = [key for key in keys if _is_signing_key(key)] if isinstance(keys, list) else []
        if not usable:
            raise ValueError("it has no signing key")
        self._keys = usable
        self._at = time.monotonic()
        self._parsed.cache_clear()

    async def _fetch(self) -> None:
        """Fetch the keys, one request at a time and at most every `GAP_S`. If it fails, the current keys stay in use."""
        requested_at = time.monotonic()
        async with self._lock:
            # Another request may have fetched them while this one waited for the lock.
            if self._tried_at > requested_at or time.monotonic() - self._tried_at < GAP_S:
                return
            try:
                with anyio.fail_after(FETCH_S):
                    url = self._rules.jwks_url or str((await self.discover())["jwks_uri"])
                    self._store(await fetch_json(self._fetcher, url))
            except (UpstreamUnavailable, TimeoutError, ValueError) as error:
                reason = str(error) or "it did not answer in time"
                event(_log, logging.WARNING, "keys not fetched", issuer=self._rules.issuer, reason=reason)
            finally:
                self._tried_at = time.monotonic()

    async def discover(self) -> JsonObject:
        """Fetch the issuer's metadata: RFC 8414, or OpenID Connect Discovery. Raises ValueError if there is none of its own."""
        for url in metadata_urls(self._rules.issuer):
            try:
                found = await fetch_json(self._fetcher, url)
            except (UpstreamUnavailable, ValueError) as error:
                event(_log, logging.DEBUG, "no metadata there", url=url, reason=str(error))
                continue
            # As exact text: after normalization, one issuer could speak for another.
            if not isinstance(found, dict) or found.get("issuer") != self._rules.issuer:
                raise ValueError(f"{url} describes another issuer")
            if not str(found.get("jwks_uri", "")):
                raise ValueError(f"{url} has no jwks_uri")
            return found
        raise ValueError("it publishes no metadata; set jwks_url of the issuer")


def metadata_urls(issuer: str) -> list[str]:
    """Return where an authorization server may publish its metadata, in the order in which clients try them."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")

    def at(place: str) -> str:
        return urlunsplit((parts.scheme, parts.netloc, place, "", ""))

    inserted = [at(f"/.well-known/{kind}{path}") for kind in ("oauth-authorization-server", "openid-configuration")]
    return list(dict.fromkeys([*inserted, at(f"{path}/.well-known/openid-configuration")]))


async def fetch_json(fetcher: Fetcher, url: str) -> Any:
    """Fetch a JSON document; raises `UpstreamUnavailable`, also for an address that must not be reached, or ValueError."""
    try:
        request = httpx2.Request("GET", url, headers={"accept": "application/json"})
    except httpx2.InvalidURL as error:
        raise ValueError(f"`{url[:200]}` is not a URL") from error
    response = await fetcher.send(request)
    if response.status_code != 200:
        raise ValueError(f"{url} answered with {response.status_code}")
    try:
        return msgspec.json.decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{url} is not JSON") from error


def _is_signing_key(key: Any) -> bool:
    return isinstance(key, dict) and key.get("kty") in _SIGNING and key.get("use", "sig") == "sig"
