"""The grant of an authorization server: tokens, and the client registration that got them. Stored as one value, never apart.

A refresh token is bound to the client that it was issued to. A gateway that registers again and sends an old refresh token with
the new client id loses both.
"""

from typing import Final

import msgspec

NAME: Final = "oauth"
"""The name of the credential in the vault."""

MARGIN_S: Final = 60.0
MARGIN_SHARE: Final = 0.2
"""A token is renewed this long before it expires: a minute, or a fifth of a short life."""


class Registration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A client at an authorization server."""

    client_id: str
    client_secret: str | None = None
    auth_method: str = "none"
    issuer: str
    redirect_uri: str | None = None
    is_dynamic: bool = False
    secret_expires_at: float | None = None

    def __repr__(self) -> str:
        return f"Registration({self.client_id!r} at {self.issuer!r})"


class TokenTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The source and the audience of tokens."""

    url: str
    """Of the MCP server: a token is never sent anywhere else, also when the server's `url` is changed."""
    issuer: str
    token_endpoint: str
    revocation_endpoint: str | None = None
    resource: str | None = None


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens and their registration."""

    access_token: str
    refresh_token: str | None = None
    expires_at: float | None = None
    """In seconds since 1970; None if that is not known."""
    obtained_at: float
    scope: str | None = None
    """What was granted, or what was asked for where the answer does not say."""
    terms: TokenTerms
    registration: Registration
    problem: str | None = None
    """Why it can no longer be renewed; None if it can be, as far as is known."""
    renewal_began_at: float | None = None
    """Set while a renewal is in flight. One that stays set got no answer, and the authorization server may have replaced the
    refresh token."""

    def __repr__(self) -> str:
        return f"Grant(of {self.terms.issuer!r}, scope={self.scope!r})"

    @property
    def scopes(self) -> list[str]:
        return (self.scope or "").split()

    @property
    def renew_at(self) -> float | None:
        """When it should be renewed; None for never."""
        if self.expires_at is None:
            return None
        return self.expires_at - min(MARGIN_S, MARGIN_SHARE * max(0.0, self.expires_at - self.obtained_at))

    @property
    def tokens(self) -> list[str]:
        return [token for token in (self.access_token, self.refresh_token) if token]

    @property
    def secrets(self) -> list[str]:
        """The tokens, and the client's secret, which other grants may have too."""
        secret = self.registration.client_secret
        return [*self.tokens, secret] if secret else self.tokens


def encode_grant(grant: Grant) -> bytes:
    return msgspec.json.encode(grant)


def decode_grant(raw: bytes) -> Grant | None:
    """Parse a stored grant; None for one that this version cannot read."""
    try:
        return msgspec.json.decode(raw, type=Grant)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        return None
