"""The last definitions of every server, in SQLite."""

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from anyio import to_thread

from toolpost.base.ids import JsonObject
from toolpost.store.known_tools import KEPT_S, Known, write_definitions

Job = Callable[[sqlite3.Connection], Any]


class SqliteKnownTools:
    """One row per server."""

    def __init__(
        self,
        *,
        write: Callable[[Job], Awaitable[Any]],
        read: Callable[[Job], Awaitable[Any]],
        now: Callable[[], float],
    ) -> None:
        self._write = write
        self._read = read
        self._now = now

    async def remember(
        self, server: str, definitions: list[JsonObject], build: str = "", description: str = ""
    ) -> None:
        """Keep a server's definitions."""
        row = (server, self._now(), await to_thread.run_sync(write_definitions, definitions), build, description)
        await self._write(
            lambda connection: (
                connection.execute(
                    "INSERT INTO known_tools (server, seen_at, definitions, build, description) VALUES (?, ?, ?, ?, ?)"
                    " ON CONFLICT (server) DO UPDATE SET seen_at = excluded.seen_at,"
                    " definitions = excluded.definitions, build = excluded.build, description = excluded.description",
                    row,
                ).rowcount
            )
        )

    async def recall(self, server: str) -> Known | None:
        """Return what is known of a server, None if it was not seen within a day."""
        row = await self._read(
            lambda connection: connection.execute(
                "SELECT definitions, build, description FROM known_tools WHERE server = ? AND seen_at > ?",
                (server, self._now() - KEPT_S),
            ).fetchone()
        )
        if row is None:
            return None
        definitions = msgspec.json.decode(row[0], type=list[JsonObject])
        return Known(definitions=definitions, build=row[1], description=row[2])
