"""Verifies OAuth access tokens: the gateway is an OAuth 2.1 resource server. Imported only by `sdk/lazy.py`, when it is
configured.

A JWT says in `iss` whose it is, and is verified by that issuer's keys, or at that issuer's introspection endpoint if it has one.
A token of this gateway's own authorization server has a prefix, and is looked up there.
An opaque token does not name its issuer: it goes to the only issuer with introspection.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import jwt

from toolpost.base.ids import JsonObject
from toolpost.endpoints.auth.introspection import Introspection
from toolpost.endpoints.auth.oauth_keys import SigningKeys
from toolpost.endpoints.auth.oauth_rules import IssuerRules, OAuthRules
from toolpost.endpoints.auth.roster import Claims, TokenIssuer
from toolpost.endpoints.http.refusal import Refused, forbidden, unauthorized
from toolpost.net.network import Network

ALGORITHMS: Final = frozenset(
    ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
)
"""All with a public key: no secret is shared with an issuer, and `none` is none of them. A key is used for its own alone."""
LEEWAY_S: Final = 10
LATEST: Final = 10**11
"""The last time that is told apart from never: the number in a token may have any size."""

SUBJECT_LIMIT: Final = 256

_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})


class InvalidToken(Exception):
    """A token that is not valid. The message never quotes the token."""


class ResourceServer:
    """Verifies an access token's signature, times, issuer and audience, and returns its claims."""

    def __init__(self, rules: OAuthRules, login: TokenIssuer | None = None) -> None:
        self.rules: OAuthRules = rules
        self._login = login
        self._issuers = {each.issuer: _Issuer(each) for each in rules.issuers}
        self._introspecting = next((each for each in self._issuers.values() if each.introspection is not None), None)

    async def verify(self, token: bytes) -> Claims:
        """Return the claims of a valid token; raise `Refused` with 401, or with 403 if it lacks a required scope."""
        if self._login is not None and self._login.has_issued(token):
            if (issued := await self._login.find_claims(token)) is None:
                raise self._refusal("The token has expired or was revoked")
            return issued
        try:
            issuer = self._find_issuer(token)
            decoded, expires_at = await issuer.decode(token)
            claims = parse_claims(decoded, issuer.rules.issuer, expires_at, self._find_audiences(issuer.rules, decoded))
        except InvalidToken as error:
            raise self._refusal(str(error)) from error
        if missing := [scope for scope in issuer.rules.scopes if scope not in claims.scopes]:
            problem = f"The token lacks the scope {' and '.join(missing)}"
            raise forbidden(problem, self.rules.challenge("insufficient_scope", problem))
        return claims

    def _find_issuer(self, token: bytes) -> "_Issuer":
        """Find the issuer that a token claims to be from, compared as exact text."""
        try:
            named = jwt.decode_complete(token, options={"verify_signature": False})["payload"].get("iss")
        except (jwt.PyJWTError, RecursionError) as error:
            if self._introspecting is not None:
                return self._introspecting
            raise InvalidToken("The token is not a valid access token") from error
        issuer = self._issuers.get(named) if isinstance(named, str) else None
        if issuer is None:
            # Not shown to another issuer, not even to the one that introspects: it could use the token.
            raise InvalidToken("The token is from another issuer")
        return issuer

    def _find_audiences(self, rules: IssuerRules, decoded: Mapping[str, Any]) -> frozenset[str] | None:
        """Return the endpoints that a token is for, None if it is for all of them; raises `InvalidToken` for none."""
        named = set(words(decoded.get("aud"), separates=False))
        if named & set(rules.audiences):
            return None
        resource = self.rules.resource
        own = {url for url in named if url == resource or url.startswith(f"{resource}/")}
        if not self.rules.is_per_endpoint or not own:
            raise InvalidToken("The token is meant for another server")
        return frozenset(own)

    def _refusal(self, message: str) -> Refused:
        return unauthorized(message, self.rules.challenge("invalid_token", message))


class IdTokens:
    """The ID tokens of one OpenID Connect provider, of which this gateway is a client."""

    def __init__(self, issuer: str, client_id: str, network: Network) -> None:
        self._rules = IssuerRules(issuer=issuer, audiences=(client_id,), network=network)
        self._keys = SigningKeys(self._rules)

    async def discover(self) -> JsonObject:
        """Fetch the provider's metadata; raises ValueError if there is none of its own."""
        return await self._keys.discover()

    async def verify(self, token: bytes) -> JsonObject:
        """Return the claims of a valid token that names a person; raises `Refused`, with 503 while there are no keys."""
        try:
            claims = await verify_jwt(token, self._rules, self._keys, audience=self._rules.audiences)
            parse_claims(claims, self._rules.issuer, 0.0, None)
        except InvalidToken as error:
            raise unauthorized(str(error)) from error
        return claims


class _Issuer:
    def __init__(self, rules: IssuerRules) -> None:
        self.rules = rules
        self.introspection = Introspection(rules) if rules.introspection is not None else None
        self._keys = SigningKeys(rules) if self.introspection is None else None

    async def decode(self, token: bytes) -> tuple[JsonObject, float]:
        """Return the claims of a token of this issuer, for any audience, and when it has to be verified again."""
        if self.introspection is not None:
            found = await self.introspection.find(token)
            if found is None:
                raise InvalidToken("The token is not active")
            return found
        assert self._keys is not None
        decoded = await verify_jwt(token, self.rules, self._keys)
        return decoded, float(min(int(decoded["exp"]), LATEST)) + LEEWAY_S


async def verify_jwt(
    token: bytes, rules: IssuerRules, keys: SigningKeys, *, audience: Sequence[str] | None = None
) -> JsonObject:
    """Verify signature, times and issuer, and the audience if one is given; raises `InvalidToken`."""
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError as error:
        raise InvalidToken("The token is not a valid access token") from error
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise InvalidToken("The token is signed with an algorithm that is not accepted here")
    if str(header.get("typ", "jwt")).lower() not in _TYPES:
        raise InvalidToken("The token is not an access token")
    key = await keys.find(kid, algorithm)
    if key is None:
        raise InvalidToken("The token is signed with a key that its issuer does not publish")
    try:
        decoded: JsonObject = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=audience,
            issuer=rules.issuer,
            leeway=LEEWAY_S,
            options={"require": ["exp", "iss", "aud"], "verify_aud": audience is not None},
        )
    except jwt.PyJWTError as error:
        raise InvalidToken(_PROBLEMS.get(type(error), "The token is not valid")) from error
    if "cnf" in decoded:
        raise InvalidToken("The token is bound to a key (cnf), and was sent without proof of possession")
    return decoded


_PROBLEMS: Final[dict[type[Exception], str]] = {
    jwt.ExpiredSignatureError: "The token has expired",
    jwt.ImmatureSignatureError: "The token is not valid yet",
    jwt.InvalidAudienceError: "The token is meant for another server",
    jwt.InvalidIssuerError: "The token is from another issuer",
    jwt.InvalidSignatureError: "The token's signature is wrong",
}


def parse_claims(decoded: JsonObject, issuer: str, expires_at: float, audiences: frozenset[str] | None) -> Claims:
    """Return the claims that identify a caller; raises `InvalidToken` if there is no one in them."""
    subject = decoded.get("sub")
    client = decoded.get("client_id") or decoded.get("azp")
    client = client if isinstance(client, str) else None
    # The client id replaces a missing `sub` only to tell token holders apart. It must never count as a subject: an issuer that
    # lets clients choose their id would let them choose whose identity they get.
    identity = client if subject is None else subject
    if not isinstance(identity, str) or not _is_name(identity):
        raise InvalidToken("The token has no usable `sub` or `client_id`")
    return Claims(
        subject=subject,
        client=client,
        scopes=frozenset(words(decoded.get("scope")) + words(decoded.get("scp"))),
        expires_at=expires_at,
        issuer=issuer,
        audiences=audiences,
        all=decoded,
    )


def _is_name(identity: str) -> bool:
    """Whether an identity may be part of a caller id. A leading `:`, which no URI has, marks clients in `KnownCaller.id_for`."""
    return identity.isprintable() and 0 < len(identity) <= SUBJECT_LIMIT and not identity.startswith(":")


def words(value: Any, *, separates: bool = True) -> list[str]:
    """Return the words of a claim, which may be a list, or text that spaces separate."""
    if isinstance(value, str):
        return value.split() if separates else [value]
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []
