"""The last definitions of every server, in SQLite."""

import sqlite3
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from toolpost.contracts.ids import JsonObject
from toolpost.store.known_tools import KEPT_S

Job = Callable[[sqlite3.Connection], Any]


class SqliteKnownTools:
    """One row per server."""

    def __init__(self, *, write: Callable[[Job], Awaitable[Any]], read: Callable[[Job], Awaitable[Any]]) -> None:
        self._write = write
        self._read = read

    async def remember(self, server: str, definitions: list[JsonObject]) -> None:
        """Keep a server's definitions."""
        row = (server, time.time(), msgspec.json.encode(definitions).decode())
        await self._write(
            lambda connection: (
                connection.execute(
                    "INSERT INTO known_tools VALUES (?, ?, ?) ON CONFLICT (server) DO UPDATE"
                    " SET seen_at = excluded.seen_at, definitions = excluded.definitions",
                    row,
                ).rowcount
            )
        )

    async def recall(self, server: str) -> list[JsonObject] | None:
        """Return a server's definitions, None if they were not seen within a day."""
        row = await self._read(
            lambda connection: connection.execute(
                "SELECT definitions FROM known_tools WHERE server = ? AND seen_at > ?", (server, time.time() - KEPT_S)
            ).fetchone()
        )
        return None if row is None else msgspec.json.decode(row[0], type=list[JsonObject])
