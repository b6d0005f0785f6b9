"""The tools of each server as they were first listed. Definitions are compared with these where no lock names them."""

from collections.abc import Mapping, Sequence

import msgspec
from anyio import to_thread

from toolpost.base.ids import Json
from toolpost.store.scripts import NOW, Many, Row, Script, Scripts, Statement


class Pins:
    """The first definition of every tool, as JSON. A server may have 20,000 tools: they are encoded and decoded in a thread."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def of_server(self, server: str) -> Mapping[str, Json]:
        """Return the pinned definitions of a server, by the names of its tools."""
        rows = await self._scripts.read(lambda: _of_server(server))
        return await to_thread.run_sync(_decode, rows)

    async def add(self, server: str, tools: Mapping[str, Json]) -> None:
        """Pin tools; one that is pinned already stays as it is."""
        encoded = await to_thread.run_sync(_encode, tools)
        await self._scripts.run(lambda: _add(server, encoded), durable=False)

    async def drop(self, server: str, tools: Sequence[str]) -> None:
        """Delete pins: the definitions that are listed next are pinned instead."""
        await self._scripts.run(lambda: _drop(server, tools), durable=False)


def _encode(tools: Mapping[str, Json]) -> list[tuple[str, str]]:
    return [(tool, msgspec.json.encode(definition).decode()) for tool, definition in tools.items()]


def _decode(rows: Sequence[Row]) -> dict[str, Json]:
    return {tool: msgspec.json.decode(definition) for tool, definition in rows}


def _of_server(server: str) -> Script[list[Row]]:
    return (yield Statement("SELECT tool, definition FROM pins WHERE server = ?1", (server,)))


def _add(server: str, tools: Sequence[tuple[str, str]]) -> Script[None]:
    ((now,),) = yield NOW
    yield Many(
        "INSERT INTO pins (server, tool, pinned_at, definition) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
        [(server, tool, now, definition) for tool, definition in tools],
    )


def _drop(server: str, tools: Sequence[str]) -> Script[None]:
    yield Many("DELETE FROM pins WHERE server = ?1 AND tool = ?2", [(server, tool) for tool in tools])
