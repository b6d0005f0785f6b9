"""Sessions of the handshake era over HTTP: which revision each agreed on, whose it is, what it has in flight."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.discovery import EVERYTHING, View
from toolpost.endpoints.client_session import Conversation
from toolpost.endpoints.http.event_log import EventLog, EventLogs
from toolpost.endpoints.in_flight import InFlight
from toolpost.middleware import Call
from toolpost.protocol.era import LATEST_HANDSHAKE, REVISIONS, Revision
from toolpost.shares import Shares
from toolpost.upstreams.server_requests import select_capabilities

IDLE_S: Final = 30 * 60
PRIMED_SINCE: Final = "2025-11-25"

RECENT_S: Final = 60.0
"""A session that was used this recently is not ended to make room for another one of its caller."""

LOOK_S: Final = 1.0
"""How often it is looked for one that may be ended: the look is as long as a caller has sessions."""


@dataclass(kw_only=True)
class Session:
    """One client's session, from its `initialize` to its end."""

    id: str
    caller: Caller
    """Whose it is; what is kept for a session is kept under its id."""
    revision: Revision
    view: View = EVERYTHING
    """What the path showed on which it was opened; on a path that shows something else, the session does not exist."""
    conversation: Conversation = field(default_factory=lambda: Conversation(None, None))
    """Its client as servers may turn to it."""
    calls: InFlight = field(default_factory=InFlight)
    logs: EventLogs = field(default_factory=EventLogs)
    """What its response streams have said, for a client that lost one."""
    streams: int = 0
    used_at: float = field(default_factory=time.monotonic)

    def open_log(self, call: Call) -> EventLog:
        """Begin the log of a call's stream."""
        return self.logs.open(call.id, primes=self.revision.version >= PRIMED_SINCE)

    @property
    def is_busy(self) -> bool:
        """Whether a call or a stream is open."""
        return bool(self.calls) or self.streams > 0


class Sessions:
    """Every session that the SDK has opened, as the lean lane needs to know it."""

    def __init__(self, shares: Shares) -> None:
        self._sessions: dict[str, Session] = {}
        self._shares = shares
        self._looked_at: dict[CallerId, float] = {}
        """When nothing was found that could be ended for a caller."""

    def find_superfluous(self, caller: CallerId) -> str | None:
        """Return the session that is to be ended before this caller may open another one; None if there is room.

        It is the caller's own that was used longest ago. Raises `QueueOverloaded` if all of theirs are in use, or just were.
        """
        if self._shares.is_open_to(caller):
            return None
        now = time.monotonic()
        if now - self._looked_at.get(caller, -LOOK_S) < LOOK_S:
            raise self._shares.refusal(caller, retry_s=LOOK_S)
        idle = [s for s in self._sessions.values() if s.caller.id == caller and not s.is_busy]
        oldest = min(idle, key=lambda session: session.used_at, default=None)
        left_s = RECENT_S if oldest is None else oldest.used_at + RECENT_S - now
        if oldest is None or left_s > 0:
            self._looked_at = {one: at for one, at in self._looked_at.items() if now - at < LOOK_S} | {caller: now}
            raise self._shares.refusal(caller, retry_s=math.ceil(left_s))
        return oldest.id

    def reserve(self, caller: CallerId) -> None:
        """Hold a place for a session that is about to be opened; `open` or `release` must follow."""
        self._shares.take(caller)

    def release(self, caller: CallerId) -> None:
        """Give back the place of a session that was not opened."""
        self._shares.give_back(caller)

    def open(
        self,
        session_id: str,
        *,
        caller: Caller,
        requested_version: object,
        capabilities: object = None,
        view: View = EVERYTHING,
    ) -> None:
        """Note a session that the SDK has just opened, in a place that was reserved; the revision follows the SDK's own rule."""
        version = requested_version if isinstance(requested_version, str) else ""
        revision = REVISIONS.get(version)
        if revision is None or revision.is_modern:
            revision = REVISIONS[LATEST_HANDSHAKE]
        self._sessions[session_id] = Session(
            id=session_id,
            caller=replace(caller, session=session_id, answers_handshake=bool(select_capabilities(capabilities))),
            revision=revision,
            view=view.path,
            conversation=Conversation((caller.id, session_id), capabilities),
        )

    def find(self, session_id: str, caller: Caller, view: View = EVERYTHING) -> Session | None:
        """Return the session, if it is this caller's and of this view: any other does not exist for them."""
        session = self._sessions.get(session_id)
        if session is None or not _belongs(session, caller, view):
            return None
        if session.caller.is_admin != caller.is_admin:
            # Who has become an administrator, or is one no more, since the session was opened.
            session.caller = replace(session.caller, is_admin=caller.is_admin)
        session.used_at = time.monotonic()
        return session

    def is_foreign(self, session_id: str, caller: Caller, view: View = EVERYTHING) -> bool:
        """Whether the session belongs to another caller, or to another view."""
        session = self._sessions.get(session_id)
        return session is not None and not _belongs(session, caller, view)

    def close(self, session_id: str) -> None:
        """Forget a session and cancel what it has in flight."""
        if (session := self._sessions.pop(session_id, None)) is not None:
            self._shares.give_back(session.caller.id)
            session.calls.cancel_all("the session was closed")

    def of_others_than(self, is_known: Callable[[CallerId], bool]) -> list[str]:
        """Return the sessions of callers who may come in no more."""
        return [session.id for session in self._sessions.values() if not is_known(session.caller.id)]

    def idle(self) -> list[str]:
        """Return the sessions that nobody has used for long."""
        oldest = time.monotonic() - IDLE_S
        return [s.id for s in self._sessions.values() if not s.is_busy and s.used_at < oldest]


def _belongs(session: Session, caller: Caller, view: View) -> bool:
    return session.caller.id == caller.id and session.view == view.path
