"""Which tool definitions each session has been sent, so that none is sent to it twice."""

from collections.abc import Mapping
from typing import Final

import msgspec

from toolpost.base.ids import CallerId
from toolpost.store.scripts import NOW, Script, Scripts, Statement, TableAccess, lock_name, reads, writes

KEPT_S: Final = 30 * 60
"""How long a session is remembered after it was last used."""

SESSIONS_LIMIT: Final = 10_000
"""How many sessions are remembered, of all callers together."""

TOOLS_LIMIT: Final = 1_000
"""How many tools are remembered of one session: the one sent longest ago is forgotten first, and sent again on request."""

_FIND: Final = "SELECT tools FROM seen_tools WHERE caller = ?1 AND session = ?2 AND used_at > ?3"
_KEEP: Final = (
    "INSERT INTO seen_tools (caller, session, used_at, tools) VALUES (?1, ?2, ?3, ?4)"
    " ON CONFLICT (caller, session) DO UPDATE SET used_at = excluded.used_at, tools = excluded.tools"
)
_LARGEST: Final = (
    "SELECT caller, count(*) FROM seen_tools GROUP BY caller ORDER BY count(*) DESC, min(used_at), caller LIMIT 1"
)
_FORGET: Final = (
    "DELETE FROM seen_tools WHERE (caller, session) IN"
    " (SELECT caller, session FROM seen_tools WHERE caller = ?1 ORDER BY used_at LIMIT ?2)"
)

_decode = msgspec.json.Decoder(dict[str, str]).decode
_encode = msgspec.json.Encoder().encode


class SeenTools(TableAccess):
    """The definitions sent to every session.

    A session belongs to its caller: the same name given by two callers is two sessions. Over the limit, the caller with the
    most sessions loses those that were used longest ago: a caller who opens thousands pushes out only their own.
    """

    def __init__(self, scripts: Scripts, *, limit: int = SESSIONS_LIMIT) -> None:
        super().__init__(scripts)
        self._limit = limit

    @reads
    def recall(self, caller: CallerId, session: str) -> Script[Mapping[str, str]]:
        """Return the digests of what a session has been sent, by the names of tools; empty if it is not remembered."""
        ((now,),) = yield NOW
        rows = yield Statement(_FIND, (caller, session, now - KEPT_S))
        return _decode(rows[0][0]) if rows else {}

    @writes(durable=False)
    def remember(self, caller: CallerId, session: str, sent: Mapping[str, str]) -> Script[None]:
        """Add to what a session has been sent, and note that it was used now."""
        # Two gateways may serve one session, and each would overwrite what the other adds.
        yield lock_name(f"seen {caller} {session}")
        ((now,),) = yield NOW
        rows = yield Statement(_FIND, (caller, session, now - KEPT_S))
        before = _decode(rows[0][0]) if rows else {}
        # A tool that is sent again moves to the end: those at the beginning are forgotten first.
        tools = list(({name: digest for name, digest in before.items() if name not in sent} | dict(sent)).items())
        yield Statement(_KEEP, (caller, session, now, _encode(dict(tools[-TOOLS_LIMIT:])).decode()))
        if not rows:
            yield Statement("DELETE FROM seen_tools WHERE used_at <= ?1", (now - KEPT_S,))
            yield from _enforce_limit(self._limit)


def _enforce_limit(limit: int) -> Script[None]:
    """Delete sessions of the caller with the most; a hundredth of the limit more than needed, so that this is done rarely."""
    ((count,),) = yield Statement("SELECT count(*) FROM seen_tools")
    while (excess := count - limit) > 0:
        ((caller, held),) = yield Statement(_LARGEST)
        # Never all of them: the newest is the session that was just added.
        number = max(1, min(excess + limit // 100, held - 1))
        yield Statement(_FORGET, (caller, number))
        count -= number
