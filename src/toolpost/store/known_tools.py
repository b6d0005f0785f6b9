"""The tools of each server as it last listed them: they are listed while the server is down.

Where each caller has a credential of its own, a server may list other tools to each: those are kept by the credential's owner.
"""

from dataclasses import dataclass, field
from typing import Final

import msgspec
from anyio import to_thread

from toolpost.base.ids import JsonObject
from toolpost.store.scripts import NOW, Row, Script, Scripts, Statement

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


class KnownTools:
    """What every server last listed, by its name."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

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
        encoded = await to_thread.run_sync(_encode, definitions)
        offered = msgspec.json.encode(offers or {}).decode()
        await self._scripts.run(lambda: _remember(server, owner, encoded, build, description, offered), durable=False)

    async def recall(self, server: str, owner: str = "") -> KnownServer | None:
        """Return what a server last listed, None if that was more than a day ago."""
        if (row := await self._scripts.read(lambda: _recall(server, owner))) is None:
            return None
        definitions, build, description, offers = row
        decoded = msgspec.json.decode(definitions, type=list[JsonObject])
        offered = msgspec.json.decode(offers, type=JsonObject)
        return KnownServer(definitions=decoded, build=build, description=description, offers=offered)


def _encode(definitions: list[JsonObject]) -> str:
    # One by one: encoding 20,000 in one call would hold the interpreter lock for as long, even in a thread.
    return f"[{','.join([msgspec.json.encode(definition).decode() for definition in definitions])}]"


def _remember(server: str, owner: str, definitions: str, build: str, description: str, offers: str) -> Script[None]:
    ((now,),) = yield NOW
    yield Statement(_REMEMBER, (server, owner, now, definitions, build, description, offers))


def _recall(server: str, owner: str) -> Script[Row | None]:
    ((now,),) = yield NOW
    rows = yield Statement(_RECALL, (server, owner, now - KEPT_S))
    return rows[0] if rows else None
