"""What plugins keep for each caller: small values under names. No I/O."""

from dataclasses import dataclass
from typing import Protocol

import msgspec

from toolpost.base.ids import CallerId, JsonObject


@dataclass(frozen=True, kw_only=True)
class Item:
    """Something that is kept."""

    owner: CallerId
    id: str
    value: JsonObject


class Shelf(Protocol):
    """Everything that plugins keep."""

    async def items(self, plugin: str, owner: CallerId | None = None) -> list[Item]:
        """Return what a plugin keeps for a caller, or for everybody, in the order of the names."""
        ...

    async def find(self, plugin: str, owner: CallerId, item: str) -> Item | None:
        """Return one of them."""
        ...

    async def put(self, plugin: str, item: Item) -> None:
        """Keep a value, in place of what had its name."""
        ...

    async def swap(self, plugin: str, item: Item, value: JsonObject | None) -> bool:
        """Put a value in the place of this one, or None to forget it; False if somebody else was faster."""
        ...


def written(value: JsonObject) -> str:
    """Write a value; the same one always in the same words, so that it can be compared."""
    return msgspec.json.encode(value, order="sorted").decode()


def item_of(owner: str, name: str, value: str) -> Item:
    """Read what `written` wrote."""
    return Item(owner=CallerId(owner), id=name, value=msgspec.json.decode(value))
