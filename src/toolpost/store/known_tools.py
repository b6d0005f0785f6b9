"""The tools of each server as they were last seen: what is listed while the server is down."""

from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from toolpost.base.ids import JsonObject

KEPT_S: Final = 24 * 60 * 60


@dataclass(frozen=True, kw_only=True)
class Known:
    """What was last seen of one server."""

    definitions: list[JsonObject]
    build: str = ""
    """The version that the server gave itself."""
    description: str = ""
    """The server's own title, description and instructions."""


class KnownTools(Protocol):
    """What was last seen of every server."""

    async def remember(
        self, server: str, definitions: list[JsonObject], build: str = "", description: str = ""
    ) -> None:
        """Keep a server's definitions, as they came, the version that it gave itself, and its own description."""
        ...

    async def recall(self, server: str) -> Known | None:
        """Return what is known of a server, None if it was not seen within a day."""
        ...


def write_definitions(definitions: list[JsonObject]) -> str:
    """Return definitions as JSON. For a thread, one by one: to write 20,000 in one go keeps the interpreter lock for as long."""
    return f"[{','.join([msgspec.json.encode(definition).decode() for definition in definitions])}]"
