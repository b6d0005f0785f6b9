"""The key-value store of plugins: small JSON values by plugin, caller and id."""

from dataclasses import dataclass
from typing import Final

import msgspec

from toolpost.base.ids import CallerId, JsonObject
from toolpost.store.scripts import NOW, Row, Script, Statement, TableAccess, change, reads, writes

_COLUMNS: Final = "SELECT owner, id, value FROM key_values WHERE plugin = ?1"
_PUT: Final = (
    "INSERT INTO key_values (plugin, owner, id, changed_at, value) VALUES (?1, ?2, ?3, ?4, ?5)"
    " ON CONFLICT (plugin, owner, id) DO UPDATE SET changed_at = excluded.changed_at, value = excluded.value"
)
_THIS: Final = "WHERE plugin = ?1 AND owner = ?2 AND id = ?3 AND value = ?4"


@dataclass(frozen=True, kw_only=True)
class Item:
    """An entry of the key-value store: a value, its owner and its id."""

    owner: CallerId
    id: str
    value: JsonObject


class KeyValueStore(TableAccess):
    """The values of all plugins, separate for each caller."""

    @reads
    def items(self, plugin: str, owner: CallerId | None = None) -> Script[list[Item]]:
        """Return the items of a plugin for one caller, or for all, ordered by owner and id."""
        where = "AND (CAST(?2 AS TEXT) IS NULL OR owner = ?2) ORDER BY owner, id"
        rows = yield Statement(f"{_COLUMNS} {where}", (plugin, owner))
        return [_parse_item(row) for row in rows]

    @reads
    def find(self, plugin: str, owner: CallerId, item: str) -> Script[Item | None]:
        """Return the item of this id, None if there is none."""
        rows = yield Statement(f"{_COLUMNS} AND owner = ?2 AND id = ?3", (plugin, owner, item))
        return _parse_item(rows[0]) if rows else None

    @writes(durable=False)
    def put(self, plugin: str, item: Item) -> Script[None]:
        """Store an item; one with the same id is replaced."""
        ((now,),) = yield NOW
        yield Statement(_PUT, (plugin, item.owner, item.id, now, _encode(item.value)))

    @writes(durable=False, repeatable=False)
    def swap(self, plugin: str, item: Item, value: JsonObject | None) -> Script[bool]:
        """Replace the value of an item, or with None delete it; False if its value is no longer the one given.

        Raises `StoreUnavailable` if the database was lost during the commit: it may have been replaced or not.
        """
        this = (plugin, item.owner, item.id, _encode(item.value))
        if value is None:
            changed = yield change(f"DELETE FROM key_values {_THIS}", this)  # noqa: S608 - constants
        else:
            ((now,),) = yield NOW
            sql = f"UPDATE key_values SET changed_at = ?5, value = ?6 {_THIS}"  # noqa: S608 - constants
            changed = yield change(sql, (*this, now, _encode(value)))
        return bool(changed)


def _encode(value: JsonObject) -> str:
    # Sorted, as `swap` compares values as text.
    return msgspec.json.encode(value, order="sorted").decode()


def _parse_item(row: Row) -> Item:
    owner, name, value = row
    return Item(owner=CallerId(owner), id=name, value=msgspec.json.decode(value))
