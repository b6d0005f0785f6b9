"""Reads the lists of a server page by page, within limits and in slices, so that a long list does not block the event loop.

A page is decoded in two passes. The first only finds where its items begin and end, which takes milliseconds for the largest
page; the second decodes the items, a few at a time, up to the limit.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any, Final

import anyio.lowlevel
import msgspec

from toolpost.base import Json, JsonObject, event
from toolpost.contracts.errors import UpstreamUnavailable

_log = logging.getLogger("toolpost.upstreams")

ITEMS_LIMIT: Final = 20_000
PAGE_LIMIT_BYTES: Final = 8 * 1024 * 1024
LIST_LIMIT_BYTES: Final = 32 * 1024 * 1024
VALUES_LIMIT: Final = 500_000
"""How many values a page may have, counted by its commas: millions of empty items are few bytes, and take seconds to decode."""

SLICE_S: Final = 0.005


class Slices:
    """Divides long work on the event loop: `give_way` lets other tasks run after each `SLICE_S`."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_S

    async def give_way(self) -> None:
        """Let other tasks run if the slice is used up; only then a cancellation is raised."""
        if time.perf_counter() >= self._until:
            await anyio.lowlevel.checkpoint()
            self._until = time.perf_counter() + SLICE_S


async def are_same(one: Sequence[Any] | None, other: Sequence[Any] | None) -> bool:
    """Compare two lists in slices: one comparison of two large lists would block the event loop."""
    if one is None or other is None or len(one) != len(other):
        return one is other
    slices = Slices()
    for item, counterpart in zip(one, other, strict=True):
        if item != counterpart:
            return False
        await slices.give_way()
    return True


class ListReader:
    """Collects the items of one list; items beyond the limits are left out, with a warning in the log."""

    def __init__(self, server: str, field: str) -> None:
        """Read items from a field of each page: `tools`, `resources`, `prompts` or `resourceTemplates`."""
        self.items: list[JsonObject] = []
        self._server = server
        self._field = field
        self._size_bytes = 0
        self._cursors: set[str] = set()
        self._slices = Slices()

    async def take(self, page: bytes) -> str | None:
        """Decode a page and return the cursor of the next one; None if there is none, or a limit is reached.

        Raises `UpstreamUnavailable` if it is no page, or exceeds the limits of a page.
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
        # A list that is cut short is still listed: a server with too many tools is of more use than none.
        if len(items) > room:
            self._warn(f"more than {ITEMS_LIMIT:,} items")
        elif cursor is None:
            return None
        elif len(items) == room:
            self._warn(f"{ITEMS_LIMIT:,} items and another page")
        elif self._size_bytes >= LIST_LIMIT_BYTES:
            self._warn(f"more than {LIST_LIMIT_BYTES:,} bytes")
        elif cursor in self._cursors:
            self._warn("a cursor that was returned before")
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
