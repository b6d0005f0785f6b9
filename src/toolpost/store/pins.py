"""The tools of each server as they were first seen: what they are held to where no lock names them."""

from collections.abc import Mapping, Sequence
from typing import Protocol

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
