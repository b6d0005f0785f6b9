"""Secrets that gateways share, in SQLite."""

import secrets
import sqlite3
import time
from collections.abc import Awaitable, Callable
from typing import Any

from toolpost.store.keys import SECRET_BYTES

Job = Callable[[sqlite3.Connection], Any]


class SqliteKeys:
    """One row per secret."""

    def __init__(self, *, write: Callable[[Job], Awaitable[Any]], read: Callable[[Job], Awaitable[Any]]) -> None:
        self._write = write
        self._read = read

    async def of(self, name: str) -> bytes:
        """Return the secret of this name; made if there is none."""
        if (known := await self._read(lambda connection: _found(connection, name))) is None:
            row = (name, time.time(), secrets.token_bytes(SECRET_BYTES))
            known = await self._write(lambda connection: _kept(connection, row))
        return bytes(known)


def _found(connection: sqlite3.Connection, name: str) -> bytes | None:
    row = connection.execute("SELECT secret FROM keys WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def _kept(connection: sqlite3.Connection, row: tuple[str, float, bytes]) -> bytes | None:
    connection.execute("INSERT INTO keys (name, made_at, secret) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row)
    return _found(connection, row[0])
