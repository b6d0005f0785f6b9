"""The keys of an authorization server: from a file, or fetched, kept, and fetched anew when one is not known."""

import logging
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import anyio
import jwt
import msgspec

from toolpost.base.events import event
from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import BadConfiguration, ErrorCode
from toolpost.endpoints.auth.oauth_rules import OAuthRules
from toolpost.endpoints.http.refusal import Refused
from toolpost.upstreams.http.client import HttpClient, HttpFailed

_log = logging.getLogger("toolpost.oauth")

FRESH_S: Final = 300.0
"""How long fetched keys are taken for what the server has."""

KEPT_S: Final = 86_400.0
"""How long they are used while the server cannot be reached."""

GAP_S: Final = 30.0
"""How long no other attempt is made: tokens with invented keys must not make us fetch."""

FETCH_S: Final = 10.0
BODY_LIMIT: Final = 1024 * 1024

_LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_SIGNING: Final = frozenset({"RSA", "EC", "OKP"})


class Keys:
    """The keys as they are known now."""

    def __init__(self, rules: OAuthRules) -> None:
        self._rules = rules
        self._keys: Sequence[JsonObject] = ()
        self._at = float("-inf")
        self._tried_at = float("-inf")
        self._turn = anyio.Lock()
        self._made = lru_cache(maxsize=64)(self._make)
        if rules.jwks_file is not None:
            self._take(_read(rules.jwks_file))

    async def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        """Return the key that a token names, None if nobody has it."""
        if time.monotonic() - self._at > FRESH_S:
            await self._fetch()
        if (key := self._known(kid, algorithm)) is None:
            await self._fetch()
            key = self._known(kid, algorithm)
        if not self._keys or (self._rules.jwks_file is None and time.monotonic() - self._at > KEPT_S):
            raise Refused(
                503,
                ErrorCode.UPSTREAM_UNAVAILABLE,
                "The signing keys of the authorization server cannot be fetched: try again later",
            )
        return key

    def _known(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        fitting = [number for number, key in enumerate(self._keys) if kid is None or key.get("kid") == kid]
        made = [key for number in fitting if (key := self._made(number, algorithm)) is not None]
        # A token that names no key is judged by the only one that it could mean.
        return made[0] if len(made) == 1 else None

    def _make(self, number: int, algorithm: str) -> jwt.PyJWK | None:
        jwk = self._keys[number]
        if jwk.get("alg", algorithm) != algorithm:
            return None
        try:
            return jwt.PyJWK(jwk, algorithm=algorithm)
        except jwt.PyJWTError:
            return None

    def _take(self, document: Any) -> None:
        keys = document.get("keys") if isinstance(document, Mapping) else None
        usable = [key for key in keys if _signs(key)] if isinstance(keys, list) else []
        if not usable:
            raise ValueError("it contains no signing key")
        self._keys = usable
        self._at = time.monotonic()
        self._made.cache_clear()

    async def _fetch(self) -> None:
        """Ask the server, one at a time and not too often; keys that cannot be had leave those that are there."""
        asked_at = time.monotonic()
        if self._rules.jwks_file is not None:
            return
        async with self._turn:
            if self._tried_at > asked_at or time.monotonic() - self._tried_at < GAP_S:
                return
            try:
                with anyio.fail_after(FETCH_S):
                    self._take(await _document(self._rules.jwks_url or await self._discovered()))
            except (HttpFailed, TimeoutError, ValueError, BadConfiguration) as error:
                reason = str(error) or "it did not answer in time"
                event(_log, logging.WARNING, "keys not fetched", issuer=self._rules.issuer, reason=reason)
            finally:
                self._tried_at = time.monotonic()

    async def _discovered(self) -> str:
        """Learn from the issuer where its keys are: RFC 8414, or OpenID Connect's older way."""
        for url in metadata_urls(self._rules.issuer):
            try:
                found = await _document(url)
            except (HttpFailed, ValueError) as error:
                event(_log, logging.DEBUG, "no metadata there", url=url, reason=str(error))
                continue
            if not isinstance(found, dict) or found.get("issuer") != self._rules.issuer:
                raise ValueError(f"{url} names another issuer")
            address = found.get("jwks_uri")
            if not isinstance(address, str) or not _is_safe(address):
                raise ValueError(f"{url} has no jwks_uri")
            return address
        raise ValueError("it publishes no metadata; set http.oauth.jwks_url")


def metadata_urls(issuer: str) -> list[str]:
    """Return where an authorization server may describe itself, in the order in which clients look."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")

    def at(place: str) -> str:
        return urlunsplit((parts.scheme, parts.netloc, place, "", ""))

    inserted = [at(f"/.well-known/{kind}{path}") for kind in ("oauth-authorization-server", "openid-configuration")]
    return list(dict.fromkeys([*inserted, at(f"{path}/.well-known/openid-configuration")]))


async def _document(url: str) -> Any:
    async with HttpClient(url, headers={"accept": "application/json"}, body_limit=BODY_LIMIT) as client:
        response = await client.request("GET")
    if response.status != 200:
        raise ValueError(f"{url} answered with {response.status}")
    try:
        return msgspec.json.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{url} is not JSON") from error


def _read(path: Path) -> Any:
    try:
        document = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise BadConfiguration(f"http.oauth.jwks_file: cannot read {path}: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"http.oauth.jwks_file: {path} is not JSON.") from error
    if not isinstance(document, dict) or not any(map(_signs, document.get("keys") or ())):
        raise BadConfiguration(f"http.oauth.jwks_file: {path} contains no signing key.")
    return document


def _signs(key: Any) -> bool:
    return isinstance(key, dict) and key.get("kty") in _SIGNING and key.get("use", "sig") == "sig"


def _is_safe(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL)
