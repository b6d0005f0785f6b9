"""Access tokens of an authorization server, judged: we are an OAuth 2.1 resource server. Imported late, by `late.py` alone."""

from typing import Any, Final

import jwt

from toolpost.base.ids import JsonObject
from toolpost.endpoints.auth.oauth_keys import Keys
from toolpost.endpoints.auth.oauth_rules import OAuthRules
from toolpost.endpoints.auth.roster import Claims
from toolpost.endpoints.http.refusal import Refused, forbidden, unauthorized

LEEWAY_S: Final = 10
SUBJECT_LIMIT: Final = 256

_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})


class ResourceServer:
    """Says who an access token stands for, once its signature, its times and its audience are right."""

    def __init__(self, rules: OAuthRules) -> None:
        self.rules: OAuthRules = rules
        self._keys = Keys(rules)

    def challenge(self) -> str:
        """Say how to come by a token."""
        return self.rules.challenge()

    def metadata(self) -> JsonObject:
        """Say where tokens come from."""
        return self.rules.metadata()

    async def judge(self, token: bytes) -> Claims:
        """Return what a token says, or turn it away."""
        claims = _claims_in(await self._decoded(token), self)
        if missing := [scope for scope in self.rules.scopes if scope not in claims.scopes]:
            told = f"The token lacks the scope {' and '.join(missing)}"
            raise forbidden(told, self.rules.challenge("insufficient_scope", told))
        return claims

    async def _decoded(self, token: bytes) -> JsonObject:
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError as error:
            raise self.refusal("The token is not one that lets anybody in") from error
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self.rules.algorithms:
            raise self.refusal("The token is signed in a way that is not taken here")
        if str(header.get("typ", "jwt")).lower() not in _TYPES:
            raise self.refusal("The token is no access token")
        key = await self._keys.find(kid, algorithm)
        if key is None:
            raise self.refusal("The token is signed with a key that its issuer does not have")
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
            raise self.refusal(_FAULTS.get(type(error), "The token is not true")) from error
        if "cnf" in decoded:
            raise self.refusal("The token is bound to a key, and was shown without proof of it")
        return decoded

    def refusal(self, message: str) -> Refused:
        """Say what is wrong with a token: never what is in it."""
        return unauthorized(message, self.rules.challenge("invalid_token", message))


_FAULTS: Final[dict[type[Exception], str]] = {
    jwt.ExpiredSignatureError: "The token has expired",
    jwt.ImmatureSignatureError: "The token is not valid yet",
    jwt.InvalidAudienceError: "The token is meant for another server",
    jwt.InvalidIssuerError: "The token is of another issuer",
    jwt.InvalidSignatureError: "The token's signature is wrong",
}


def _claims_in(decoded: JsonObject, server: ResourceServer) -> Claims:
    subject = decoded.get("sub")
    client = decoded.get("client_id") or decoded.get("azp")
    client = client if isinstance(client, str) else None
    # The client stands in for a missing `sub` only as what tells holders apart: it must never pass for a subject, because an
    # issuer that lets clients choose their id would let them choose whom they come in as.
    identity = client if subject is None else subject
    if not isinstance(identity, str) or not _is_name(identity):
        raise server.refusal("The token does not say whose it is")
    return Claims(
        subject=subject,
        client=client,
        scopes=frozenset(_words(decoded.get("scope")) + _words(decoded.get("scp"))),
        expires_at=float(decoded["exp"]) + LEEWAY_S,
    )


def _is_name(identity: str) -> bool:
    """Return whether an identity can stand in an id; by a leading `:`, which no URI has, `KnownCaller.id_for` marks clients."""
    return identity.isprintable() and 0 < len(identity) <= SUBJECT_LIMIT and not identity.startswith(":")


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.split()
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []
