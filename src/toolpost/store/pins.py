"""The tools of each server as they were first seen: what they are held to where no lock names them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from toolpost.base.ids import Json


class Pins(Protocol):
    """The first definition of every tool, as plain JSON."""

    async def of_server(self, server: str) -> Mapping[str, Json]:
        """Return what is pinned of a server, by the names of its tools."""
        ...

    async def add(self, server: str, tools: Mapping[str, Json]) -> None:
        """Pin tools; one that is pinned already stays as it is."""
        ...

    async def drop(self, server: str, tools: Sequence[str]) -> None:
        """Forget pins: what is seen next is pinned instead."""
        ...


def written_pins(server: str, now: float, tools: Mapping[str, Json]) -> list[tuple[str, str, float, str]]:
    """Return the rows of pins. For a thread, one by one: a server may have 20,000 tools."""
    return [(server, tool, now, msgspec.json.encode(definition).decode()) for tool, definition in tools.items()]


def read_pins(rows: Iterable[Any]) -> dict[str, Json]:
    """Read rows of tool and definition. For a thread too."""
    return {tool: msgspec.json.decode(definition) for tool, definition in rows}
