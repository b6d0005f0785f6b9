"""What each session has been sent, in SQLite."""

import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from toolpost.base.ids import CallerId
from toolpost.store.seen import KEPT_S, SESSIONS_LIMIT, TOOLS_LIMIT

Job = Callable[[sqlite3.Connection], Any]

_decode = msgspec.json.Decoder(dict[str, str]).decode
_encode = msgspec.json.Encoder().encode

_FIND = "SELECT tools FROM seen_tools WHERE caller = ? AND session = ? AND used_at > ?"
_KEEP = (
    "INSERT INTO seen_tools (caller, session, used_at, tools) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (caller, session) DO UPDATE SET used_at = excluded.used_at, tools = excluded.tools"
)
_LARGEST = (
    "SELECT caller, count(*) FROM seen_tools GROUP BY caller ORDER BY count(*) DESC, min(used_at), caller LIMIT 1"
)
_FORGET = (
    "DELETE FROM seen_tools WHERE rowid IN (SELECT rowid FROM seen_tools WHERE caller = ? ORDER BY used_at LIMIT ?)"
)


class SqliteSeenTools:
    """One row per session."""

    def __init__(
        self,
        *,
        write: Callable[[Job], Awaitable[Any]],
        read: Callable[[Job], Awaitable[Any]],
        now: Callable[[], float],
        limit: int = SESSIONS_LIMIT,
    ) -> None:
        self._write = write
        self._read = read
        self._now = now
        self._limit = limit

    async def recall(self, caller: CallerId, session: str) -> Mapping[str, str]:
        """Return what a session has been sent, as digests by the names of tools."""
        found = (caller, session, self._now() - KEPT_S)
        row = await self._read(lambda connection: connection.execute(_FIND, found).fetchone())
        return {} if row is None else _decode(row[0])

    async def remember(self, caller: CallerId, session: str, sent: Mapping[str, str]) -> None:
        """Add to what a session has been sent, and note that it was used now."""
        await self._write(lambda connection: self._merge(connection, caller, session, sent))

    def _merge(self, connection: sqlite3.Connection, caller: CallerId, session: str, sent: Mapping[str, str]) -> None:
        now = self._now()
        row = connection.execute(_FIND, (caller, session, now - KEPT_S)).fetchone()
        before = {} if row is None else _decode(row[0])
        # What is sent again moves to the end: the beginning is what is forgotten first.
        kept = list(({name: digest for name, digest in before.items() if name not in sent} | dict(sent)).items())
        tools = _encode(dict(kept[-TOOLS_LIMIT:])).decode()
        connection.execute(_KEEP, (caller, session, now, tools))
        if row is None:
            connection.execute("DELETE FROM seen_tools WHERE used_at <= ?", (now - KEPT_S,))
            self._make_room(connection)

    def _make_room(self, connection: sqlite3.Connection) -> None:
        """Let the largest share shrink, by a hundredth more than it must, so that this is not done for every session."""
        count: int = connection.execute("SELECT count(*) FROM seen_tools").fetchone()[0]
        while (excess := count - self._limit) > 0:
            caller, held = connection.execute(_LARGEST).fetchone()
            # The newest is the one that has just come.
            number = max(1, min(excess + self._limit // 100, held - 1))
            connection.execute(_FORGET, (caller, number))
            count -= number
