"""The last definitions of every server, in PostgreSQL."""

import time
from typing import TYPE_CHECKING

import msgspec

from toolpost.contracts.ids import JsonObject
from toolpost.store.known_tools import KEPT_S

if TYPE_CHECKING:
    from toolpost.store.postgres import PostgresStore

_REMEMBER = """
INSERT INTO known_tools (server, seen_at, definitions) VALUES ($1, $2, $3)
ON CONFLICT (server) DO UPDATE SET seen_at = excluded.seen_at, definitions = excluded.definitions
"""


class PostgresKnownTools:
    """One row per server."""

    def __init__(self, store: "PostgresStore") -> None:
        self._store = store

    async def remember(self, server: str, definitions: list[JsonObject]) -> None:
        """Keep a server's definitions."""
        row = (server, time.time(), msgspec.json.encode(definitions).decode())
        await self._store.write(lambda connection: connection.execute(_REMEMBER, *row), repeatable=True)

    async def recall(self, server: str) -> list[JsonObject] | None:
        """Return a server's definitions, None if they were not seen within a day."""
        found = await self._store.read(
            lambda connection: connection.fetchval(
                "SELECT definitions FROM known_tools WHERE server = $1 AND seen_at > $2", server, time.time() - KEPT_S
            )
        )
        return None if found is None else msgspec.json.decode(found, type=list[JsonObject])
