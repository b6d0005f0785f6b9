"""The tools of each server: as it first listed them (pins), and as it last did, which is what is listed while it is down.

Definitions are compared with their pins where no lock names them. A server may have 20,000 tools, so that definitions are encoded
and decoded in a thread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from anyio import to_thread

from toolpost.base.ids import Json, JsonObject
from toolpost.store.scripts import NOW, Many, Row, Script, Statement, TableAccess, reads, writes

KEPT_S: Final = 24 * 60 * 60

_REMEMBER: Final = (
    "INSERT INTO known_tools (server, owner, seen_at, definitions, build, description, offers)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
    " ON CONFLICT (server, owner) DO UPDATE SET seen_at = excluded.seen_at, definitions = excluded.definitions,"
    " build = excluded.build, description = excluded.description, offers = excluded.offers"
)
_RECALL: Final = (
    "SELECT definitions, build, description, offers FROM known_tools WHERE server = ?1 AND owner = ?2 AND seen_at > ?3"
)
_PIN: Final = "INSERT INTO pins (server, tool, pinned_at, definition) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING"


@dataclass(frozen=True, kw_only=True)
class KnownServer:
    """What a server last listed."""

    definitions: list[JsonObject]
    build: str = ""
    """The version of the server, as it reports it."""
    description: str = ""
    """The server's own title, description and instructions."""
    offers: JsonObject = field(default_factory=dict)
    """Its instructions, and the extensions that it declares."""


class KnownTools(TableAccess):
    """What every server last listed, by its name.

    Where each caller has a credential of its own, a server may list other tools to each: they are kept for each owner.
    """

    async def remember(
        self,
        server: str,
        definitions: list[JsonObject],
        build: str = "",
        description: str = "",
        *,
        owner: str = "",
        offers: JsonObject | None = None,
    ) -> None:
        """Store the definitions of a server as they came, with its version, its description and what it offers."""
        encoded = await to_thread.run_sync(_encode_all, definitions)
        offered = msgspec.json.encode(offers or {}).decode()
        await self._put(server, owner, encoded, build, description, offered)

    async def recall(self, server: str, owner: str = "") -> KnownServer | None:
        """Return what a server last listed, None if that was more than a day ago."""
        if (row := await self._find(server, owner)) is None:
            return None
        definitions, build, description, offers = row
        decoded = await to_thread.run_sync(lambda: msgspec.json.decode(definitions, type=list[JsonObject]))
        offered = msgspec.json.decode(offers, type=JsonObject)
        return KnownServer(definitions=decoded, build=build, description=description, offers=offered)

    @writes(durable=False)
    def _put(self, server: str, owner: str, *values: str) -> Script[None]:
        ((now,),) = yield NOW
        yield Statement(_REMEMBER, (server, owner, now, *values))

    @reads
    def _find(self, server: str, owner: str) -> Script[Row | None]:
        ((now,),) = yield NOW
        rows = yield Statement(_RECALL, (server, owner, now - KEPT_S))
        return rows[0] if rows else None


class Pins(TableAccess):
    """The first definition of every tool, as JSON."""

    async def of_server(self, server: str) -> Mapping[str, Json]:
        """Return the pinned definitions of a server, by the names of its tools."""
        rows = await self._find(server)
        return await to_thread.run_sync(lambda: {tool: msgspec.json.decode(definition) for tool, definition in rows})

    async def add(self, server: str, tools: Mapping[str, Json]) -> None:
        """Pin tools; one that is pinned already stays as it is."""
        encoded = await to_thread.run_sync(lambda: [(tool, _encode(definition)) for tool, definition in tools.items()])
        await self._insert(server, encoded)

    @writes(durable=False)
    def drop(self, server: str, tools: Sequence[str]) -> Script[None]:
        """Delete pins: the definitions that are listed next are pinned instead."""
        yield Many("DELETE FROM pins WHERE server = ?1 AND tool = ?2", [(server, tool) for tool in tools])

    @reads
    def _find(self, server: str) -> Script[list[Row]]:
        return (yield Statement("SELECT tool, definition FROM pins WHERE server = ?1", (server,)))

    @writes(durable=False)
    def _insert(self, server: str, tools: Sequence[tuple[str, str]]) -> Script[None]:
        ((now,),) = yield NOW
        yield Many(_PIN, [(server, tool, now, definition) for tool, definition in tools])


def _encode(definition: Json) -> str:
    return msgspec.json.encode(definition).decode()


def _encode_all(definitions: list[JsonObject]) -> str:
    # One by one: encoding 20,000 in one call would hold the interpreter lock for as long, even in a thread.
    return f"[{','.join(map(_encode, definitions))}]"
