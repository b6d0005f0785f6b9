"""Asks an authorization server whether a token is active (RFC 7662), and remembers the answer for a short time.

Answers are kept in two places, both bounded: those about active tokens in the roster, for `cache_s` and never past `exp`; those
about others here, so that a client that repeats a token that is not active does not cause a request each time.
"""

import base64
import logging
import time
from collections import OrderedDict
from typing import Final
from urllib.parse import quote, urlencode

import anyio
import httpx2
import msgspec

from toolpost.base import JsonObject, event
from toolpost.contracts.errors import ErrorCode, UpstreamUnavailable
from toolpost.credentials.fetch import Fetcher
from toolpost.endpoints.auth.oauth_rules import IssuerRules
from toolpost.endpoints.auth.roster import TokenDigest, digest_of
from toolpost.endpoints.http.refusal import Refused

_log = logging.getLogger("toolpost.oauth")

INACTIVE_S: Final = 10.0
INACTIVE_LIMIT: Final = 4_096
"""How long, and how many, tokens that are not active are remembered."""

CONCURRENT: Final = 16
"""Requests to the server at a time: strangers with random tokens must not make the gateway flood it."""

TOKEN_LIMIT: Final = 8_192
"""A token of more bytes is not sent on."""

_CLAIMS_LIMIT: Final = 64 * 1024


class Introspection:
    """Introspects the tokens of one issuer."""

    def __init__(self, rules: IssuerRules) -> None:
        assert rules.introspection is not None
        self._issuer = rules.issuer
        self._rules = rules.introspection
        self._fetcher = Fetcher([self._rules.url], rules.network)
        self._inactive: OrderedDict[TokenDigest, float] = OrderedDict()
        self._requests = anyio.CapacityLimiter(CONCURRENT)
        # RFC 6749, 2.3.1: both are form-encoded before they are joined.
        credentials = f"{quote(self._rules.client, safe='')}:{quote(self._rules.secret, safe='')}"
        self._authorization = f"Basic {base64.b64encode(credentials.encode()).decode()}"

    async def find(self, token: bytes) -> tuple[JsonObject, float] | None:
        """Return the claims of an active token and when to ask again; None if it is not active.

        Raises `Refused` (503) if the server does not answer as it should.
        """
        digest = digest_of(token)
        if self._inactive.get(digest, 0.0) > time.monotonic() or len(token) > TOKEN_LIMIT:
            return None
        async with self._requests:
            asked_at = time.time()
            claims = await self._ask(token)
        expires_at = claims.get("exp")
        until = asked_at + self._rules.cache_s
        if isinstance(expires_at, int | float):
            until = float(min(until, expires_at))  # the number may have any size
        # Exactly true: a server that answers "false" as text must not let its callers in.
        if claims.get("active") is not True or not self._is_valid(claims, asked_at):
            self._remember_inactive(digest)
            return None
        return claims, until

    def _is_valid(self, claims: JsonObject, now: float) -> bool:
        """Whether an active token is from this issuer, valid at this time, and not bound to a key."""
        times = (claims.get("exp", now + 1), claims.get("nbf", now))
        if not all(isinstance(each, int | float) for each in times):
            return False
        expires_at, begins_at = times
        return (
            # A server that answers for several issuers must not let one stand for the other.
            claims.get("iss", self._issuer) == self._issuer
            and begins_at <= now < expires_at
            and "cnf" not in claims
            and str(claims.get("token_type", "bearer")).lower() == "bearer"
        )

    def _remember_inactive(self, digest: TokenDigest) -> None:
        self._inactive[digest] = time.monotonic() + INACTIVE_S
        self._inactive.move_to_end(digest)
        while len(self._inactive) > INACTIVE_LIMIT:
            self._inactive.popitem(last=False)

    async def _ask(self, token: bytes) -> JsonObject:
        body = urlencode({"token": token.decode("latin-1"), "token_type_hint": "access_token"})
        request = httpx2.Request(
            "POST",
            self._rules.url,
            content=body.encode(),
            headers={
                "accept": "application/json",
                "content-type": "application/x-www-form-urlencoded",
                "authorization": self._authorization,
            },
        )
        try:
            response = await self._fetcher.send(request)
            if response.status_code != 200:
                raise ValueError(f"it answered with {response.status_code}")
            if len(response.content) > _CLAIMS_LIMIT:
                raise ValueError("its answer is too large")
            claims = msgspec.json.decode(response.content, type=dict)
        except (UpstreamUnavailable, ValueError, msgspec.DecodeError, RecursionError) as error:
            # The reason is about the server; neither the token nor the answer is in it.
            reason = "it did not answer with JSON" if isinstance(error, msgspec.DecodeError) else str(error)
            event(_log, logging.WARNING, "token not introspected", issuer=self._issuer, reason=reason)
            raise Refused(
                503,
                ErrorCode.UPSTREAM_UNAVAILABLE,
                "The authorization server cannot be asked about the token now: try again",
            ) from error
        return claims
