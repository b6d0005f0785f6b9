"""The first definitions of every server's tools, in SQLite."""

import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from anyio import to_thread

from toolpost.base.ids import Json
from toolpost.store.pins import read_pins, written_pins

Job = Callable[[sqlite3.Connection], Any]


class SqlitePins:
    """One row per tool."""

    def __init__(self, *, write: Callable[[Job], Awaitable[Any]], read: Callable[[Job], Awaitable[Any]]) -> None:
        self._write = write
        self._read = read

    async def of_server(self, server: str) -> Mapping[str, Json]:
        """Return what is pinned of a server, by the names of its tools."""
        rows = await self._read(
            lambda connection: connection.execute(
                "SELECT tool, definition FROM pins WHERE server = ?", (server,)
            ).fetchall()
        )
        return await to_thread.run_sync(read_pins, rows)

    async def add(self, server: str, tools: Mapping[str, Json]) -> None:
        """Pin tools; one that is pinned already stays as it is."""
        now = time.time()
        rows = await to_thread.run_sync(written_pins, server, now, tools)
        await self._write(
            lambda connection: (
                connection.executemany("INSERT INTO pins VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", rows).rowcount
            )
        )

    async def drop(self, server: str, tools: Sequence[str]) -> None:
        """Forget pins."""
        rows = [(server, tool) for tool in tools]
        await self._write(
            lambda connection: connection.executemany("DELETE FROM pins WHERE server = ? AND tool = ?", rows).rowcount
        )
