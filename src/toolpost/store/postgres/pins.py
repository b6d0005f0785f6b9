"""The first definitions of every server's tools, in PostgreSQL."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from anyio import to_thread

from toolpost.base.ids import Json
from toolpost.store.pins import read_pins, written_pins

if TYPE_CHECKING:
    from toolpost.store.postgres.store import PostgresStore

_ADD = "INSERT INTO pins (server, tool, pinned_at, definition) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"


class PostgresPins:
    """One row per tool."""

    def __init__(self, store: "PostgresStore") -> None:
        self._store = store

    async def of_server(self, server: str) -> Mapping[str, Json]:
        """Return what is pinned of a server, by the names of its tools."""
        rows = await self._store.read(
            lambda connection: connection.fetch("SELECT tool, definition FROM pins WHERE server = $1", server)
        )
        return await to_thread.run_sync(read_pins, rows)

    async def add(self, server: str, tools: Mapping[str, Json]) -> None:
        """Pin tools; one that is pinned already stays as it is."""
        now = time.time()
        rows = await to_thread.run_sync(written_pins, server, now, tools)
        await self._store.write(lambda connection: connection.executemany(_ADD, rows), repeatable=True)

    async def drop(self, server: str, tools: Sequence[str]) -> None:
        """Forget pins."""
        await self._store.write(
            lambda connection: connection.execute(
                "DELETE FROM pins WHERE server = $1 AND tool = ANY($2::text[])", server, list(tools)
            ),
            repeatable=True,
        )
