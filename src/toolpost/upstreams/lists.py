"""Lists of a server, read page by page: within limits, and in slices, so that no list keeps the event loop from other work.

A page is read in two passes. The first only finds where its items begin and end, which takes milliseconds for the largest page;
the second decodes them, a few at a time, and only as many as there is room for.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any, Final

import anyio.lowlevel
import msgspec

from toolpost.base.events import event
from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.errors import UpstreamUnavailable

_log = logging.getLogger("toolpost.upstreams")

ITEMS_LIMIT: Final = 20_000
PAGE_LIMIT_BYTES: Final = 8 * 1024 * 1024
LIST_LIMIT_BYTES: Final = 32 * 1024 * 1024
VALUES_LIMIT: Final = 500_000
"""How many values a page may have, counted by its commas: millions of empty items are few bytes, and seconds to read."""

SLICE_S: Final = 0.005


class Slices:
    """Cuts long work on the event loop: `give_way` lets other tasks run once a slice of time is used up."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_S

    async def give_way(self) -> None:
        """Let others run if it is time; a point of cancellation then."""
        if time.perf_counter() >= self._until:
            await anyio.lowlevel.checkpoint()
            self._until = time.perf_counter() + SLICE_S


async def are_same(one: Sequence[Any] | None, other: Sequence[Any] | None) -> bool:
    """Compare two lists in slices: one comparison of two large lists would hold the event loop until its end."""
    if one is None or other is None or len(one) != len(other):
        return one is other
    slices = Slices()
    for item, counterpart in zip(one, other, strict=True):
        if item != counterpart:
            return False
        await slices.give_way()
    return True


class ListReader:
    """Collects the items of one list; what is beyond the limits is left out, with a warning."""

    def __init__(self, server: str, field: str) -> None:
        """Read the items from this field of each page: `tools`, `resources`, `prompts` or `resourceTemplates`."""
        self.items: list[JsonObject] = []
        self._server = server
        self._field = field
        self._size_bytes = 0
        self._cursors: set[str] = set()
        self._slices = Slices()

    async def take(self, page: bytes) -> str | None:
        """Read the JSON of a page and return the cursor of the next one, None if this was the last that is read.

        Raises `UpstreamUnavailable` for what is no page, and for a page over the limits.
        """
        if len(page) > PAGE_LIMIT_BYTES or page.count(b",") > VALUES_LIMIT:
            size = f"{len(page):,} bytes and {page.count(b','):,} commas"
            limit = f"{PAGE_LIMIT_BYTES:,} and {VALUES_LIMIT:,}"
            raise UpstreamUnavailable(f"a page of its list of {self._field} has {size}; the limits are {limit}")
        self._size_bytes += len(page)
        items, cursor = self._split(page)
        room = ITEMS_LIMIT - len(self.items)
        for item in items[:room]:
            value = _decode(item)
            if isinstance(value, dict):
                self.items.append(value)
            await self._slices.give_way()
        if len(items) > room:
            self._warn(f"more than {ITEMS_LIMIT:,} items")
        elif cursor is None:
            return None
        elif len(items) == room:
            self._warn(f"{ITEMS_LIMIT:,} items and another page")
        elif self._size_bytes >= LIST_LIMIT_BYTES:
            self._warn(f"more than {LIST_LIMIT_BYTES:,} bytes")
        elif cursor in self._cursors:
            self._warn("a page that comes again")
        else:
            self._cursors.add(cursor)
            return cursor
        return None

    def _split(self, page: bytes) -> tuple[list[msgspec.Raw], str | None]:
        try:
            fields = msgspec.json.decode(page, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamUnavailable(f"its list of {self._field} is no JSON object: {error}") from error
        try:
            items = msgspec.json.decode(fields.get(self._field, b"[]"), type=list[msgspec.Raw])
        except msgspec.DecodeError:
            items = []
        cursor = _decode(fields["nextCursor"]) if "nextCursor" in fields else None
        return items, cursor if isinstance(cursor, str) else None

    def _warn(self, reason: str) -> None:
        read = len(self.items)
        event(_log, logging.WARNING, f"list of {self._field} cut short", server=self._server, reason=reason, read=read)


def _decode(raw: msgspec.Raw) -> Json:
    try:
        value: Json = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamUnavailable(f"its list is not JSON: {error}") from error
    return value
