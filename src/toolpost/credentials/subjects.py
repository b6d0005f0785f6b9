"""The access tokens with which callers have come, for servers whose tokens are got in exchange for them (RFC 8693).

They are in memory alone, until they expire, and only if a server needs them. A caller may have several, one for each of its
clients: the one that came last is exchanged, and one that is refused is not tried again.
"""

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

OWNERS_LIMIT: Final = 4_096
TOKENS_LIMIT: Final = 4
"""How many callers' tokens are kept, and how many of each."""


@dataclass(frozen=True, kw_only=True)
class SubjectToken:
    """An access token that a caller has sent, verified."""

    token: str = field(repr=False)
    issuer: str
    expires_at: float
    """Until when it is known to be valid, in seconds since 1970."""


class SubjectTokens:
    """The tokens of all callers of one gateway, by the owner of their credentials."""

    def __init__(self) -> None:
        self._by_owner: OrderedDict[str, list[SubjectToken]] = OrderedDict()

    def keep(self, owner: str, token: bytes, *, issuer: str | None, expires_at: float) -> None:
        """Keep a token that was verified just now."""
        if not owner or issuer is None:
            return
        new = SubjectToken(token=token.decode("latin-1"), issuer=issuer, expires_at=expires_at)
        known = [each for each in self._by_owner.pop(owner, ()) if each.token != new.token]
        self._by_owner[owner] = [new, *known][:TOKENS_LIMIT]
        while len(self._by_owner) > OWNERS_LIMIT:
            self._by_owner.popitem(last=False)

    def find(self, owner: str, issuer: str | None) -> str | None:
        """Return the token of this issuer with which an owner came last; None if there is none that is valid."""
        valid = [each for each in self._by_owner.get(owner, ()) if each.expires_at > time.time()]
        self._set(owner, valid)
        return next((each.token for each in valid if each.issuer == issuer), None)

    def drop(self, owner: str, token: str) -> None:
        """Forget a token that was refused."""
        self._set(owner, [each for each in self._by_owner.get(owner, ()) if each.token != token])

    def _set(self, owner: str, tokens: list[SubjectToken]) -> None:
        if tokens:
            self._by_owner[owner] = tokens
        else:
            self._by_owner.pop(owner, None)
