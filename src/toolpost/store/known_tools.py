"""The tools of each server as it last listed them: they are listed while the server is down."""

from dataclasses import dataclass
from typing import Final

import msgspec
from anyio import to_thread

from toolpost.base.ids import JsonObject
from toolpost.store.scripts import NOW, Row, Script, Scripts, Statement

KEPT_S: Final = 24 * 60 * 60

_REMEMBER: Final = (
    "INSERT INTO known_tools (server, seen_at, definitions, build, description) VALUES (?1, ?2, ?3, ?4, ?5)"
    " ON CONFLICT (server) DO UPDATE SET seen_at = excluded.seen_at, definitions = excluded.definitions,"
    " build = excluded.build, description = excluded.description"
)
_RECALL: Final = "SELECT definitions, build, description FROM known_tools WHERE server = ?1 AND seen_at > ?2"


@dataclass(frozen=True, kw_only=True)
class KnownServer:
    """What a server last listed."""

    definitions: list[JsonObject]
    build: str = ""
    """The version of the server, as it reports it."""
    description: str = ""
    """The server's own title, description and instructions."""


class KnownTools:
    """What every server last listed, by its name."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def remember(
        self, server: str, definitions: list[JsonObject], build: str = "", description: str = ""
    ) -> None:
        """Store the definitions of a server as they came, with its version and its description."""
        encoded = await to_thread.run_sync(_encode, definitions)
        await self._scripts.run(lambda: _remember(server, encoded, build, description), full=False)

    async def recall(self, server: str) -> KnownServer | None:
        """Return what a server last listed, None if that was more than a day ago."""
        if (row := await self._scripts.read(lambda: _recall(server))) is None:
            return None
        definitions, build, description = row
        decoded = msgspec.json.decode(definitions, type=list[JsonObject])
        return KnownServer(definitions=decoded, build=build, description=description)


def _encode(definitions: list[JsonObject]) -> str:
    # One by one: encoding 20,000 in one call would hold the interpreter lock for as long, even in a thread.
    return f"[{','.join([msgspec.json.encode(definition).decode() for definition in definitions])}]"


def _remember(server: str, definitions: str, build: str, description: str) -> Script[None]:
    ((now,),) = yield NOW
    yield Statement(_REMEMBER, (server, now, definitions, build, description))


def _recall(server: str) -> Script[Row | None]:
    ((now,),) = yield NOW
    rows = yield Statement(_RECALL, (server, now - KEPT_S))
    return rows[0] if rows else None
