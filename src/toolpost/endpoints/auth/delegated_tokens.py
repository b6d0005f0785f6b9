"""Tokens for agents: one for each session, by which its agent reaches the gateway as the caller who leads the conversation."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from toolpost.base.caller import Caller, GatewayAccess, Scope
from toolpost.endpoints.auth.roster import Roster


class DelegatedTokens:
    """Lends tokens while HTTP is served, each good until it is taken back."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._url: str | None = None

    @contextmanager
    def open_at(self, url: str) -> Iterator[None]:
        """Lend tokens for a gateway that is served at this URL, for as long as this is open."""
        self._url = url
        try:
            yield
        finally:
            self._url = None

    def lend(self, caller: Caller, scopes: Sequence[Scope]) -> GatewayAccess | None:
        """Make a token that acts as this caller, within these scopes; None while HTTP is not served."""
        if self._url is None:
            return None
        token = f"tpd-{secrets.token_urlsafe(24)}"
        self._roster.lend(token.encode(), caller, tuple(scopes))
        return GatewayAccess(url=self._url, token=token)

    def take_back(self, door: GatewayAccess) -> None:
        """Revoke a token."""
        self._roster.take_back(door.token.encode())
