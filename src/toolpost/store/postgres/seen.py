"""What each session has been sent, in PostgreSQL."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from toolpost.base.ids import CallerId
from toolpost.store.postgres.connection import Connection
from toolpost.store.seen import KEPT_S, SESSIONS_LIMIT, TOOLS_LIMIT

if TYPE_CHECKING:
    from toolpost.store.postgres.store import PostgresStore

_decode = msgspec.json.Decoder(dict[str, str]).decode
_encode = msgspec.json.Encoder().encode

_FIND = "SELECT tools FROM seen_tools WHERE caller = $1 AND session = $2 AND used_at > $3"
_KEEP = """
INSERT INTO seen_tools (caller, session, used_at, tools) VALUES ($1, $2, $3, $4)
ON CONFLICT (caller, session) DO UPDATE SET used_at = excluded.used_at, tools = excluded.tools
"""
_LARGEST = """
SELECT caller, count(*) FROM seen_tools GROUP BY caller ORDER BY count(*) DESC, min(used_at), caller LIMIT 1
"""
_FORGET = """
DELETE FROM seen_tools WHERE (caller, session) IN
    (SELECT caller, session FROM seen_tools WHERE caller = $1 ORDER BY used_at LIMIT $2)
"""


class PostgresSeenTools:
    """One row per session."""

    def __init__(self, store: "PostgresStore", *, limit: int = SESSIONS_LIMIT) -> None:
        self._store = store
        self._limit = limit

    async def recall(self, caller: CallerId, session: str) -> Mapping[str, str]:
        """Return what a session has been sent, as digests by the names of tools."""
        oldest = self._store.clock.now() - KEPT_S
        found = await self._store.read(lambda connection: connection.fetchval(_FIND, caller, session, oldest))
        return {} if found is None else _decode(found)

    async def remember(self, caller: CallerId, session: str, sent: Mapping[str, str]) -> None:
        """Add to what a session has been sent, and note that it was used now."""
        await self._store.write(lambda connection: self._merge(connection, caller, session, sent), repeatable=True)

    async def _merge(self, connection: Connection, caller: CallerId, session: str, sent: Mapping[str, str]) -> None:
        # Two gateways may serve one session.
        await self._store.lock_within(connection, f"seen {caller} {session}")
        now = self._store.clock.now()
        found = await connection.fetchval(_FIND, caller, session, now - KEPT_S)
        before = {} if found is None else _decode(found)
        # What is sent again moves to the end: the beginning is what is forgotten first.
        kept = list(({name: digest for name, digest in before.items() if name not in sent} | dict(sent)).items())
        await connection.execute(_KEEP, caller, session, now, _encode(dict(kept[-TOOLS_LIMIT:])).decode())
        if found is None:
            await connection.execute("DELETE FROM seen_tools WHERE used_at <= $1", now - KEPT_S)
            await self._make_room(connection)

    async def _make_room(self, connection: Connection) -> None:
        """Let the largest share shrink, by a hundredth more than it must, so that this is not done for every session."""
        count: int = await connection.fetchval("SELECT count(*) FROM seen_tools")
        while (excess := count - self._limit) > 0:
            largest = await connection.fetchrow(_LARGEST)
            assert largest is not None
            # The newest is the one that has just come.
            number = max(1, min(excess + self._limit // 100, largest[1] - 1))
            await connection.execute(_FORGET, largest[0], number)
            count -= number
