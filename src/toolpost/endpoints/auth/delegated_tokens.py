"""Doors for agents: a token for each session, by which its agent reaches the gateway as whoever leads the conversation."""

import secrets
from collections.abc import Sequence

from toolpost.base.caller import Caller, Door, Scope
from toolpost.endpoints.auth.roster import Roster


class RosterDoors:
    """Lets in whoever was lent a token, for as long as they have it."""

    def __init__(self, roster: Roster, url: str) -> None:
        self._roster = roster
        self._url = url

    def lend(self, caller: Caller, scopes: Sequence[Scope]) -> Door:
        """Make a way in, for one session."""
        token = f"tpd-{secrets.token_urlsafe(24)}"
        self._roster.lend(token.encode(), caller, tuple(scopes))
        return Door(url=self._url, token=token)

    def take_back(self, door: Door) -> None:
        """Close it."""
        self._roster.take_back(door.token.encode())
