"""The tools of each server as they were last seen: what is listed while the server is down."""

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
class Known:
    """What was last seen of one server."""

    definitions: list[JsonObject]
    build: str = ""
    """The version that the server gave itself."""
    description: str = ""
    """The server's own title, description and instructions."""


class KnownTools:
    """What was last seen of every server."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def remember(
        self, server: str, definitions: list[JsonObject], build: str = "", description: str = ""
    ) -> None:
        """Keep a server's definitions, as they came, the version that it gave itself, and its own description."""
        encoded = await to_thread.run_sync(_encode, definitions)
        await self._scripts.run(lambda: _remember(server, encoded, build, description), full=False)

    async def recall(self, server: str) -> Known | None:
        """Return what is known of a server, None if it was not seen within a day."""
        if (row := await self._scripts.read(lambda: _recall(server))) is None:
            return None
        definitions, build, description = row
        decoded = msgspec.json.decode(definitions, type=list[JsonObject])
        return Known(definitions=decoded, build=build, description=description)


def _encode(definitions: list[JsonObject]) -> str:
    # One by one: to encode 20,000 in one go would hold the interpreter lock for as long, in a thread too.
    return f"[{','.join([msgspec.json.encode(definition).decode() for definition in definitions])}]"


def _remember(server: str, definitions: str, build: str, description: str) -> Script[None]:
    ((now,),) = yield NOW
    yield Statement(_REMEMBER, (server, now, definitions, build, description))


def _recall(server: str) -> Script[Row | None]:
    ((now,),) = yield NOW
    rows = yield Statement(_RECALL, (server, now - KEPT_S))
    return rows[0] if rows else None
