"""Sessions of the handshake era over HTTP: the revision of each, its caller, and its calls in flight."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from toolpost.base.caller import Caller, parse_client_info
from toolpost.base.ids import CallerId
from toolpost.discovery import EVERYTHING, View
from toolpost.endpoints.client_session import HandshakeClient
from toolpost.endpoints.http.event_log import EventLog, EventLogs
from toolpost.endpoints.in_flight import InFlight
from toolpost.fairness import Shares
from toolpost.middleware.call import Call
from toolpost.protocol.era import Revision, agree_version
from toolpost.upstreams.server_requests import takes_server_requests

IDLE_S: Final = 30 * 60
PRIMED_SINCE: Final = "2025-11-25"

RECENT_S: Final = 60.0
"""A session that was used within this time is not ended to make room for another one of its caller."""

SEARCH_S: Final = 1.0
"""How often one that may be ended is searched for: the search goes through all sessions of a caller."""


SessionListener = Callable[[str, Revision, float], None]
"""Is told of a session that has ended: its transport, its revision, and how many seconds it lasted."""


@dataclass(kw_only=True)
class Session:
    """One client's session, from its `initialize` to its end."""

    id: str
    caller: Caller
    """Its caller; what is stored per session has its id."""
    revision: Revision
    view: View = EVERYTHING
    """The view of the path on which it was opened; on a path with another view the session does not exist."""
    client: HandshakeClient = field(default_factory=lambda: HandshakeClient(None, None))
    """Its client, for server requests."""
    calls: InFlight = field(default_factory=InFlight)
    logs: EventLogs = field(default_factory=EventLogs)
    """The events of its response streams, for a client that reconnects."""
    streams: int = 0
    used_at: float = field(default_factory=time.monotonic)
    opened_at: float = field(default_factory=time.monotonic)

    def open_log(self, call: Call) -> EventLog:
        return self.logs.open(call.id, primes=self.revision.version >= PRIMED_SINCE)

    @property
    def is_busy(self) -> bool:
        """Whether a call or a stream is open."""
        return bool(self.calls) or self.streams > 0


class Sessions:
    """Every session that the SDK has opened, for requests that do not pass the SDK."""

    def __init__(self, shares: Shares, on_end: SessionListener | None = None) -> None:
        """`on_end` is told of sessions that have ended."""
        self._on_end = on_end
        self._sessions: dict[str, Session] = {}
        self._shares = shares
        self._searched_at: dict[CallerId, float] = {}
        """When no session was found that could be ended, by caller."""

    def find_evictable(self, caller: CallerId) -> str | None:
        """Return the session to end before this caller may open another one; None if there is room.

        It is the caller's least recently used. Raises `QueueOverloaded` if all of them are in use, or just were.
        """
        if self._shares.is_open_to(caller):
            return None
        now = time.monotonic()
        if now - self._searched_at.get(caller, -SEARCH_S) < SEARCH_S:
            raise self._shares.refusal(caller, retry_s=SEARCH_S)
        idle = [s for s in self._sessions.values() if s.caller.id == caller and not s.is_busy]
        oldest = min(idle, key=lambda session: session.used_at, default=None)
        left_s = RECENT_S if oldest is None else oldest.used_at + RECENT_S - now
        if oldest is None or left_s > 0:
            self._searched_at = {one: at for one, at in self._searched_at.items() if now - at < SEARCH_S} | {
                caller: now
            }
            raise self._shares.refusal(caller, retry_s=math.ceil(left_s))
        return oldest.id

    def reserve(self, caller: CallerId) -> None:
        """Count a session that is about to be opened; `open` or `release` must follow."""
        self._shares.take(caller)

    def release(self, caller: CallerId) -> None:
        """Undo `reserve` for a session that was not opened."""
        self._shares.give_back(caller)

    def open(
        self,
        session_id: str,
        *,
        caller: Caller,
        requested_version: object,
        capabilities: object = None,
        client_info: object = None,
        view: View = EVERYTHING,
    ) -> None:
        """Add a session that the SDK has just opened and `reserve` has counted; its revision is that of `agree_version`."""
        revision = agree_version(requested_version)
        self._sessions[session_id] = Session(
            id=session_id,
            caller=replace(
                caller,
                session=session_id,
                takes_server_requests=takes_server_requests(capabilities),
                client=parse_client_info(client_info, capabilities, revision=revision.version),
            ),
            revision=revision,
            view=view.path,
            client=HandshakeClient((caller.id, session_id), capabilities),
        )

    def find(self, session_id: str, caller: Caller, view: View = EVERYTHING) -> Session | None:
        """Return the session if it belongs to this caller and view; any other does not exist for them."""
        session = self._sessions.get(session_id)
        if session is None or not _belongs(session, caller, view):
            return None
        if session.caller.is_admin != caller.is_admin:
            # A reload may have made the caller an administrator, or taken that from it, since the session was opened.
            session.caller = replace(session.caller, is_admin=caller.is_admin)
        session.used_at = time.monotonic()  # an idle session ends by this
        return session

    def is_foreign(self, session_id: str, caller: Caller, view: View = EVERYTHING) -> bool:
        """Whether the session belongs to another caller, or to another view."""
        session = self._sessions.get(session_id)
        return session is not None and not _belongs(session, caller, view)

    def close(self, session_id: str) -> None:
        """Remove a session and cancel its calls in flight."""
        if (session := self._sessions.pop(session_id, None)) is not None:
            self._shares.give_back(session.caller.id)
            session.calls.cancel_all("the session was closed")
            if self._on_end is not None:
                self._on_end(session.caller.transport, session.revision, time.monotonic() - session.opened_at)

    def end_all(self) -> None:
        """Tell of the sessions that are open when the endpoint closes."""
        if self._on_end is not None:
            for session in self._sessions.values():
                self._on_end(session.caller.transport, session.revision, time.monotonic() - session.opened_at)

    def list_of_removed(self, is_known: Callable[[CallerId], bool]) -> list[str]:
        """Return the ids of sessions whose callers have been removed."""
        return [session.id for session in self._sessions.values() if not is_known(session.caller.id)]

    def remove_expired_logs(self) -> None:
        """Remove the events of clients that lost a connection long ago: a client that has left opens no other stream."""
        for session in self._sessions.values():
            session.logs.remove_expired()

    def list_idle(self) -> list[str]:
        """Return the ids of sessions that have not been used for `IDLE_S`."""
        oldest = time.monotonic() - IDLE_S
        return [s.id for s in self._sessions.values() if not s.is_busy and s.used_at < oldest]


def _belongs(session: Session, caller: Caller, view: View) -> bool:
    known = session.caller
    rights = known.id, known.is_read_only, known.is_from_login
    return rights == (caller.id, caller.is_read_only, caller.is_from_login) and session.view == view.path
