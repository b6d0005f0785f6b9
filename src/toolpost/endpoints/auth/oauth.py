"""Verifies OAuth access tokens: the gateway is an OAuth 2.1 resource server. Imported only by `sdk/lazy.py`, when it is
configured.
"""

from typing import Any, Final

import jwt

from toolpost.base.ids import JsonObject
from toolpost.endpoints.auth.oauth_keys import SigningKeys
from toolpost.endpoints.auth.oauth_rules import OAuthRules
from toolpost.endpoints.auth.roster import Claims
from toolpost.endpoints.http.refusal import Refused, forbidden, unauthorized

LEEWAY_S: Final = 10
SUBJECT_LIMIT: Final = 256

_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})


class ResourceServer:
    """Verifies an access token's signature, times, issuer and audience, and returns its claims."""

    def __init__(self, rules: OAuthRules) -> None:
        self.rules: OAuthRules = rules
        self._keys = SigningKeys(rules)

    def challenge(self) -> str:
        return self.rules.challenge()

    def metadata(self) -> JsonObject:
        return self.rules.metadata()

    async def verify(self, token: bytes) -> Claims:
        """Return the claims of a valid token; raise `Refused` with 401, or with 403 if it lacks a required scope."""
        claims = _parse_claims(await self._decode(token), self)
        if missing := [scope for scope in self.rules.scopes if scope not in claims.scopes]:
            problem = f"The token lacks the scope {' and '.join(missing)}"
            raise forbidden(problem, self.rules.challenge("insufficient_scope", problem))
        return claims

    async def _decode(self, token: bytes) -> JsonObject:
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError as error:
            raise self.refusal("The token is not a valid access token") from error
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self.rules.algorithms:
            raise self.refusal("The token is signed with an algorithm that is not accepted here")
        if str(header.get("typ", "jwt")).lower() not in _TYPES:
            raise self.refusal("The token is not an access token")
        key = await self._keys.find(kid, algorithm)
        if key is None:
            raise self.refusal("The token is signed with a key that its issuer does not publish")
        try:
            decoded: JsonObject = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self.rules.audiences,
                issuer=self.rules.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWTError as error:
            raise self.refusal(_PROBLEMS.get(type(error), "The token is not valid")) from error
        if "cnf" in decoded:
            raise self.refusal("The token is bound to a key (cnf), and was sent without proof of possession")
        return decoded

    def refusal(self, message: str) -> Refused:
        """Make a 401 with its challenge. The message never quotes the token."""
        return unauthorized(message, self.rules.challenge("invalid_token", message))


_PROBLEMS: Final[dict[type[Exception], str]] = {
    jwt.ExpiredSignatureError: "The token has expired",
    jwt.ImmatureSignatureError: "The token is not valid yet",
    jwt.InvalidAudienceError: "The token is meant for another server",
    jwt.InvalidIssuerError: "The token is from another issuer",
    jwt.InvalidSignatureError: "The token's signature is wrong",
}


def _parse_claims(decoded: JsonObject, server: ResourceServer) -> Claims:
    subject = decoded.get("sub")
    client = decoded.get("client_id") or decoded.get("azp")
    client = client if isinstance(client, str) else None
    # The client id replaces a missing `sub` only to tell token holders apart. It must never count as a subject: an issuer that
    # lets clients choose their id would let them choose whose identity they get.
    identity = client if subject is None else subject
    if not isinstance(identity, str) or not _is_name(identity):
        raise server.refusal("The token has no usable `sub` or `client_id`")
    return Claims(
        subject=subject,
        client=client,
        scopes=frozenset(_words(decoded.get("scope")) + _words(decoded.get("scp"))),
        expires_at=float(decoded["exp"]) + LEEWAY_S,
    )


def _is_name(identity: str) -> bool:
    """Whether an identity may be part of a caller id. A leading `:`, which no URI has, marks clients in `KnownCaller.id_for`."""
    return identity.isprintable() and 0 < len(identity) <= SUBJECT_LIMIT and not identity.startswith(":")


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.split()
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []
