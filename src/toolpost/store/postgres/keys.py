"""Secrets that gateways share, in PostgreSQL."""

import secrets
import time
from typing import TYPE_CHECKING

from toolpost.store.keys import SECRET_BYTES

if TYPE_CHECKING:
    from toolpost.store.postgres.store import PostgresStore

_FIND = "SELECT secret FROM keys WHERE name = $1"
_ADD = "INSERT INTO keys (name, made_at, secret) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"


class PostgresKeys:
    """One row per secret."""

    def __init__(self, store: "PostgresStore") -> None:
        self._store = store

    async def of(self, name: str) -> bytes:
        """Return the secret of this name; made if there is none."""
        known = await self._store.read(lambda connection: connection.fetchval(_FIND, name))
        if known is None:
            row = (name, time.time(), secrets.token_bytes(SECRET_BYTES))
            await self._store.write(lambda connection: connection.execute(_ADD, *row), repeatable=True)
            # Another gateway may have been quicker: what is kept is what counts.
            known = await self._store.read(lambda connection: connection.fetchval(_FIND, name))
        assert known is not None
        return bytes(known)
