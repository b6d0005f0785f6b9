"""What plugins keep, in SQLite."""

import sqlite3
import time
from collections.abc import Awaitable, Callable
from typing import Any

from toolpost.base.ids import CallerId, JsonObject
from toolpost.store.key_values import Item, item_of, written

Job = Callable[[sqlite3.Connection], Any]

_PUT = (
    "INSERT INTO shelf (plugin, owner, id, changed_at, value) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (plugin, owner, id) DO UPDATE SET changed_at = excluded.changed_at, value = excluded.value"
)
_ITEMS = "SELECT owner, id, value FROM shelf WHERE plugin = ? AND (? IS NULL OR owner = ?) ORDER BY owner, id"
_FIND = "SELECT owner, id, value FROM shelf WHERE plugin = ? AND owner = ? AND id = ?"
_SWAP = "UPDATE shelf SET changed_at = ?, value = ? WHERE plugin = ? AND owner = ? AND id = ? AND value = ?"
_DROP = "DELETE FROM shelf WHERE plugin = ? AND owner = ? AND id = ? AND value = ?"


class SqliteShelf:
    """One row per value."""

    def __init__(self, *, write: Callable[[Job], Awaitable[Any]], read: Callable[[Job], Awaitable[Any]]) -> None:
        self._write = write
        self._read = read

    async def items(self, plugin: str, owner: CallerId | None = None) -> list[Item]:
        """Return what a plugin keeps for a caller, or for everybody."""
        rows = await self._read(lambda connection: connection.execute(_ITEMS, (plugin, owner, owner)).fetchall())
        return [item_of(*row) for row in rows]

    async def find(self, plugin: str, owner: CallerId, item: str) -> Item | None:
        """Return one of them."""
        row = await self._read(lambda connection: connection.execute(_FIND, (plugin, owner, item)).fetchone())
        return item_of(*row) if row is not None else None

    async def put(self, plugin: str, item: Item) -> None:
        """Keep a value."""
        row = (plugin, item.owner, item.id, time.time(), written(item.value))
        await self._write(lambda connection: connection.execute(_PUT, row).rowcount)

    async def swap(self, plugin: str, item: Item, value: JsonObject | None) -> bool:
        """Put a value in the place of this one, if it is still there."""
        place = (plugin, item.owner, item.id, written(item.value))
        sql, row = (_DROP, place) if value is None else (_SWAP, (time.time(), written(value), *place))
        return bool(await self._write(lambda connection: connection.execute(sql, row).rowcount))
