"""The last definitions of every server, in PostgreSQL."""

from typing import TYPE_CHECKING

import msgspec
from anyio import to_thread

from toolpost.base.ids import JsonObject
from toolpost.store.known_tools import KEPT_S, Known, write_definitions

if TYPE_CHECKING:
    from toolpost.store.postgres.store import PostgresStore

_REMEMBER = """
INSERT INTO known_tools (server, seen_at, definitions, build, description) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (server) DO UPDATE
SET seen_at = excluded.seen_at, definitions = excluded.definitions, build = excluded.build,
    description = excluded.description
"""


class PostgresKnownTools:
    """One row per server."""

    def __init__(self, store: "PostgresStore") -> None:
        self._store = store

    async def remember(
        self, server: str, definitions: list[JsonObject], build: str = "", description: str = ""
    ) -> None:
        """Keep a server's definitions."""
        written = await to_thread.run_sync(write_definitions, definitions)
        row = (server, self._store.clock.now(), written, build, description)
        await self._store.write(lambda connection: connection.execute(_REMEMBER, *row), repeatable=True)

    async def recall(self, server: str) -> Known | None:
        """Return what is known of a server, None if it was not seen within a day."""
        found = await self._store.read(
            lambda connection: connection.fetchrow(
                "SELECT definitions, build, description FROM known_tools WHERE server = $1 AND seen_at > $2",
                server,
                self._store.clock.now() - KEPT_S,
            )
        )
        if found is None:
            return None
        definitions = msgspec.json.decode(found[0], type=list[JsonObject])
        return Known(definitions=definitions, build=found[1], description=found[2])
