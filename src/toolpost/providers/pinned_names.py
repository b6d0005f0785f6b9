"""The pins of one server in memory: the digest of each, the last seen last; and the pace at which a server renames its tools.

A server decides the names of its tools, and may list others each time. So only the names that it listed last are kept, and names
that come in place of others are counted: beyond `RENAMES_LIMIT` in an hour they are left out until the next hour. Nor is a pin
forgotten within a day after its tool was listed: a server could list 20,000 other names once, and then its first tools as it
likes. New names that there is no room for are left out until there is.

The first listing of a server replaces nothing, nor does one that only has more tools than before; both are taken whole. Names of
skills all count as ones in place of others: they are pinned one by one, and a server lists 1,000 of them at most.
"""

import hashlib
import itertools
import time
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, Self

import msgspec

from toolpost.base.ids import ToolName
from toolpost.contracts.compatibility import Definition
from toolpost.contracts.compatibility.definition import find_server_of_instructions
from toolpost.upstreams.lists import ITEMS_LIMIT, LIST_LIMIT_BYTES

NAMES_LIMIT: Final = ITEMS_LIMIT
"""How many names of a server are kept: as many as it may list at once."""
SIZE_LIMIT_BYTES: Final = 2 * LIST_LIMIT_BYTES
"""How large the definitions of all pins of a server may be in the store."""

KEPT_S: Final = 24 * 3_600.0
"""How long a pin is kept at least, after its tool was last listed."""

RENAMES_LIMIT: Final = 2_000
RENAMED_LIMIT_BYTES: Final = SIZE_LIMIT_BYTES // 10
RENAMES_S: Final = 3_600.0
"""How many names, with definitions of which size, may come in place of others in which time."""


class Pin(NamedTuple):
    """A pinned definition."""

    digest: bytes
    """Of all but `tooling_version`, which promises nothing and changes with each release of a server."""
    size_bytes: int

    @classmethod
    def of(cls, definition: Definition) -> Self:
        promise = msgspec.structs.replace(definition, tooling_version="").to_json()
        written = msgspec.json.encode(promise, order="deterministic")
        return cls(hashlib.sha256(written).digest(), len(written))


class PinnedNames:
    """The pins of one server."""

    def __init__(self) -> None:
        self._pins: dict[ToolName, Pin] = {}
        """The last one was seen last."""
        self._seen_at: dict[ToolName, float] = {}
        """When each of them was last seen by this process, or read, on the monotonic clock."""
        self._size_bytes = 0
        self._listed: frozenset[ToolName] = frozenset()
        self._renames = 0
        self._renamed_bytes = 0
        self._began_at = -RENAMES_S
        """When the hour began in which renames are counted, on the monotonic clock."""
        self._is_over = False
        """Whether names were left out in this hour."""
        self.left_out = 0
        """How many tools of the last listing were left out."""

    def __len__(self) -> int:
        return len(self._pins)

    def get(self, name: ToolName) -> Pin | None:
        return self._pins.get(name)

    @property
    def problem(self) -> str | None:
        """Why the server is degraded; None if it is not."""
        if not self.left_out and (not self._is_over or self._is_hour_over):
            return None
        left_out = f"{self.left_out:,} tools with new names are left out" if self.left_out else "some were left out"
        limits = (
            f"at most {RENAMES_LIMIT:,} names in an hour may replace others, and {NAMES_LIMIT:,} are kept for a day"
        )
        return f"it keeps renaming its tools or skills; {limits}: {left_out}"

    @property
    def _is_hour_over(self) -> bool:
        return time.monotonic() - self._began_at >= RENAMES_S

    def begin_listing(self, listed: Collection[ToolName]) -> list[ToolName]:
        """Note the names of a listing as seen last; returns those of the listing before that it does not have."""
        now = frozenset(listed)
        gone, self._listed = self._listed - now, now
        for name in listed:
            self.note_seen(name)
        return [name for name in gone if name in self._pins]

    def note_seen(self, name: ToolName) -> None:
        if (pin := self._pins.pop(name, None)) is not None:
            self._pins[name] = pin
            self._seen_at[name] = time.monotonic()

    def select_new(self, new: Mapping[ToolName, Pin]) -> list[ToolName]:
        """Return the new names of a listing that may be pinned; the others are to be left out."""
        self._begin_hour()
        others = sum(find_server_of_instructions(name) is None for name in self._pins.keys() - self._listed)
        selected = self._select(new, max(0, len(new) - others))
        self.left_out = len(new) - len(selected)
        self._is_over = self._is_over or self.left_out > 0
        return selected

    def select_skill(self, name: ToolName, pin: Pin) -> bool:
        """Whether the new name of a skill may be pinned; else it is to be left out."""
        self._begin_hour()
        is_selected = self._renames < RENAMES_LIMIT and bool(self._select({name: pin}, 0))
        self._is_over = self._is_over or not is_selected
        return is_selected

    def _begin_hour(self) -> None:
        if self._is_hour_over:
            self._began_at, self._renames, self._renamed_bytes, self._is_over = time.monotonic(), 0, 0, False

    def _select(self, new: Mapping[ToolName, Pin], additions: int) -> list[ToolName]:
        """Return the names that there is room for, so many of them in place of no other."""
        old = list(itertools.takewhile(self._is_old, self._pins))
        room = NAMES_LIMIT - len(self._pins) + len(old)
        room_bytes = SIZE_LIMIT_BYTES - self._size_bytes + sum(self._pins[name].size_bytes for name in old)
        selected: list[ToolName] = []
        for name, pin in new.items():
            if not room or pin.size_bytes > room_bytes:
                continue
            if additions:
                additions -= 1
            elif self._renames < RENAMES_LIMIT and self._renamed_bytes + pin.size_bytes <= RENAMED_LIMIT_BYTES:
                self._renames += 1
                self._renamed_bytes += pin.size_bytes
            else:
                continue
            room -= 1
            room_bytes -= pin.size_bytes
            selected.append(name)
        return selected

    def add(self, name: ToolName, pin: Pin) -> list[ToolName]:
        """Pin a name; returns the names that are forgotten for it, those seen longest ago."""
        self.remove(name)
        self._pins[name] = pin
        self._seen_at[name] = time.monotonic()
        self._size_bytes += pin.size_bytes
        return self._forget_oldest()

    def replace(self, pins: dict[ToolName, Pin]) -> list[ToolName]:
        """Take pins, the last seen last, in place of all others; returns the names that there is no room for."""
        self._pins = pins
        self._seen_at = dict.fromkeys(pins, time.monotonic())
        self._size_bytes = sum(pin.size_bytes for pin in pins.values())
        return self._forget_oldest()

    def remove(self, name: ToolName) -> None:
        if (pin := self._pins.pop(name, None)) is not None:
            self._size_bytes -= pin.size_bytes
            del self._seen_at[name]

    def _is_old(self, name: ToolName) -> bool:
        return time.monotonic() - self._seen_at[name] >= KEPT_S

    def _forget_oldest(self) -> list[ToolName]:
        forgotten: list[ToolName] = []
        while len(self._pins) > NAMES_LIMIT or (self._size_bytes > SIZE_LIMIT_BYTES and len(self._pins) > 1):
            forgotten.append(next(iter(self._pins)))
            self.remove(forgotten[-1])
        return forgotten
