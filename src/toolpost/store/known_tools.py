"""The tools of each server: its first definitions (pins), and its last ones, which are listed while it is down.

Definitions are compared with their pins where no lock names them. A server may have 20,000 tools, so that definitions are encoded
and decoded in a thread.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec
from anyio import to_thread

from toolpost.base.ids import Json, JsonObject
from toolpost.store.scripts import NOW, Many, Row, Script, Statement, TableAccess, marks, reads, writes

Measure = TypeVar("Measure")

KEPT_S: Final = 24 * 60 * 60

_AT_ONCE: Final = 500
"""How many names one query has."""

_REMEMBER: Final = (
    "INSERT INTO known_tools (server, owner, seen_at, definitions, build, description, offers)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
    " ON CONFLICT (server, owner) DO UPDATE SET seen_at = excluded.seen_at, definitions = excluded.definitions,"
    " build = excluded.build, description = excluded.description, offers = excluded.offers"
)
_RECALL: Final = (
    "SELECT definitions, build, description, offers FROM known_tools WHERE server = ?1 AND owner = ?2 AND seen_at > ?3"
)
_PIN: Final = (
    "INSERT INTO pins (server, tool, pinned_at, seen_at, definition) VALUES (?1, ?2, ?3, ?3, ?4) ON CONFLICT DO NOTHING"
)
_UNPIN: Final = "DELETE FROM pins WHERE server = ?1 AND tool = ?2"
_NEWEST: Final = (
    "SELECT tool FROM pins WHERE server = ?1 ORDER BY seen_at DESC, pinned_at DESC, tool LIMIT CAST(?2 AS BIGINT)"
)


@dataclass(frozen=True, kw_only=True)
class KnownServer:
    """The last list of a server."""

    definitions: list[JsonObject]
    build: str = ""
    """The version of the server, as it reports it."""
    description: str = ""
    """The server's own title, description and instructions."""
    offers: JsonObject = field(default_factory=dict)
    """Its instructions, and the extensions that it declares."""


class KnownTools(TableAccess):
    """The last list of every server, by its name.

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
    """The first definition of every tool, as JSON. How many are kept is decided by `providers.pinned_names`."""

    async def of_server(self, server: str, tools: Sequence[str] | None = None) -> dict[str, Json]:
        """Return the pinned definitions of a server, or of these tools alone, by name; the ones that were seen last come last."""
        rows = await (self._find(server) if tools is None else self._find_some(server, tools))
        return await to_thread.run_sync(lambda: {tool: msgspec.json.decode(definition) for tool, definition in rows})

    @reads
    def list_recent(self, server: str, age_s: float) -> Script[list[str]]:
        """Return the tools of a server that were pinned within so many seconds."""
        ((now,),) = yield NOW
        rows = yield Statement("SELECT tool FROM pins WHERE server = ?1 AND pinned_at > ?2", (server, now - age_s))
        return [tool for (tool,) in rows]

    async def measure(self, server: str, measure: Callable[[Json], Measure]) -> dict[str, Measure]:
        """Return what a function makes of each pinned definition, in the same order; they are decoded one by one."""
        rows = await self._find(server)
        return await to_thread.run_sync(lambda: {tool: measure(msgspec.json.decode(written)) for tool, written in rows})

    async def add(
        self, server: str, tools: Mapping[str, Json], *, drop: Collection[str] = (), seen: Collection[str] = ()
    ) -> None:
        """Pin tools; one that is pinned already stays as it is.

        Before that, the pins of `drop` are deleted: definitions that are listed next are pinned instead. `seen` are pinned
        tools that a server has listed until now.
        """
        encoded = await to_thread.run_sync(lambda: [(tool, _encode(definition)) for tool, definition in tools.items()])
        await self._change(server, encoded, drop, seen)

    async def trim(self, server: str, limit: int) -> None:
        """Delete all pins of a server but the `limit` that were seen last."""
        if await self._count(server) > limit:
            await self._delete_oldest(server, limit)

    @reads
    def _find(self, server: str) -> Script[list[Row]]:
        query = "SELECT tool, definition FROM pins WHERE server = ?1 ORDER BY seen_at, pinned_at, tool DESC"
        return (yield Statement(query, (server,)))

    @reads
    def _find_some(self, server: str, tools: Sequence[str]) -> Script[list[Row]]:
        found: list[Row] = []
        for start in range(0, len(tools), _AT_ONCE):
            names = tools[start : start + _AT_ONCE]
            query = f"SELECT tool, definition FROM pins WHERE server = ?1 AND tool IN ({marks(len(names), after=1)})"  # noqa: S608 (marks)
            found += yield Statement(query, (server, *names))
        return found

    @reads
    def _count(self, server: str) -> Script[int]:
        ((count,),) = yield Statement("SELECT count(*) FROM pins WHERE server = ?1", (server,))
        return int(count)

    @writes(durable=False)
    def _change(
        self, server: str, tools: Sequence[tuple[str, str]], drop: Collection[str], seen: Collection[str]
    ) -> Script[None]:
        ((now,),) = yield NOW
        yield Many(_UNPIN, [(server, tool) for tool in drop])
        yield Many(_PIN, [(server, tool, now, definition) for tool, definition in tools])
        yield Many(
            "UPDATE pins SET seen_at = ?3 WHERE server = ?1 AND tool = ?2", [(server, tool, now) for tool in seen]
        )

    @writes(durable=False)
    def _delete_oldest(self, server: str, limit: int) -> Script[None]:
        yield Statement(f"DELETE FROM pins WHERE server = ?1 AND tool NOT IN ({_NEWEST})", (server, limit))  # noqa: S608 (a constant)


def _encode(definition: Json) -> str:
    return msgspec.json.encode(definition).decode()


def _encode_all(definitions: list[JsonObject]) -> str:
    # One by one: encoding 20,000 in one call would hold the interpreter lock for as long, even in a thread.
    return f"[{','.join(map(_encode, definitions))}]"
