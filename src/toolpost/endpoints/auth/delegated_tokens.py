"""Tokens that the gateway makes for agents: one for each agent session, which acts for the caller of the conversation."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from toolpost.base.caller import Caller, GatewayAccess, Scope
from toolpost.endpoints.auth.roster import DELEGATED_PREFIX, Roster


class DelegatedTokens:
    """Makes tokens while HTTP is served; each is valid until it is revoked."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._url: str | None = None

    @contextmanager
    def open_at(self, url: str) -> Iterator[None]:
        """Make tokens for a gateway that is served at this URL, while this is open."""
        self._url = url
        try:
            yield
        finally:
            self._url = None

    @contextmanager
    def lend(self, caller: Caller, scopes: Sequence[Scope]) -> Iterator[GatewayAccess | None]:
        """Make a token that acts for this caller, within these scopes; revoked at the end. None while HTTP is not served."""
        if self._url is None:
            yield None
            return
        token = f"{DELEGATED_PREFIX}{secrets.token_urlsafe(24)}"
        self._roster.delegate(token.encode(), caller, tuple(scopes))
        try:
            yield GatewayAccess(url=self._url, token=token)
        finally:
            self._roster.revoke(token.encode())
