"""What plugins keep, in PostgreSQL."""

import time
from typing import TYPE_CHECKING, Any

from toolpost.base.ids import CallerId, JsonObject
from toolpost.store.key_values import Item, item_of, written

if TYPE_CHECKING:
    from toolpost.store.postgres.store import PostgresStore

_PUT = (
    "INSERT INTO shelf (plugin, owner, id, changed_at, value) VALUES ($1, $2, $3, $4, $5)"
    " ON CONFLICT (plugin, owner, id) DO UPDATE SET changed_at = excluded.changed_at, value = excluded.value"
)
_ITEMS = "SELECT owner, id, value FROM shelf WHERE plugin = $1 AND ($2::text IS NULL OR owner = $2) ORDER BY owner, id"
_FIND = "SELECT owner, id, value FROM shelf WHERE plugin = $1 AND owner = $2 AND id = $3"
_SWAP = "UPDATE shelf SET changed_at = $5, value = $6 WHERE plugin = $1 AND owner = $2 AND id = $3 AND value = $4"
_DROP = "DELETE FROM shelf WHERE plugin = $1 AND owner = $2 AND id = $3 AND value = $4"


class PostgresShelf:
    """One row per value."""

    def __init__(self, store: "PostgresStore") -> None:
        self._store = store

    async def items(self, plugin: str, owner: CallerId | None = None) -> list[Item]:
        """Return what a plugin keeps for a caller, or for everybody."""
        rows = await self._store.read(lambda connection: connection.fetch(_ITEMS, plugin, owner))
        return [item_of(*row) for row in rows]

    async def find(self, plugin: str, owner: CallerId, item: str) -> Item | None:
        """Return one of them."""
        row = await self._store.read(lambda connection: connection.fetchrow(_FIND, plugin, owner, item))
        return item_of(*row) if row is not None else None

    async def put(self, plugin: str, item: Item) -> None:
        """Keep a value."""
        row = (plugin, item.owner, item.id, time.time(), written(item.value))
        await self._store.write(lambda connection: connection.execute(_PUT, *row), repeatable=True)

    async def swap(self, plugin: str, item: Item, value: JsonObject | None) -> bool:
        """Put a value in the place of this one, if it is still there."""
        place = (plugin, item.owner, item.id, written(item.value))
        changed: tuple[Any, ...] = () if value is None else (time.time(), written(value))
        sql = _DROP if value is None else _SWAP
        told = await self._store.write(lambda connection: connection.execute(sql, *place, *changed))
        return not str(told).endswith(" 0")
