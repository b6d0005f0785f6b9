"""Whose session a search belongs to."""

import hashlib
from typing import NamedTuple

from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId


class SessionKey(NamedTuple):
    """A session of one caller: what another caller calls the same is another session."""

    caller: CallerId
    session: str


def session_of(caller: Caller, session_id: str | None) -> SessionKey:
    """Name the session: the one that the caller names, else the connection that the era has, else the caller alone.

    What is named outlives a restart and is known to every gateway on the same store; a connection is what one agent has for
    as long as it lives, so that two agents that name nothing do not keep tools from each other.
    """
    named = f"named {session_id}" if session_id else f"connection {caller.session or ''}"
    # Hashed: it is as long as the caller likes and may hold what a database does not take.
    return SessionKey(caller.id, hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:32])
