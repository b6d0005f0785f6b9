"""The tools of each server as they were last seen: what is listed while the server is down."""

from typing import Final, Protocol

from toolpost.contracts.ids import JsonObject

KEPT_S: Final = 24 * 60 * 60


class KnownTools(Protocol):
    """What was last seen of every server."""

    async def remember(self, server: str, definitions: list[JsonObject]) -> None:
        """Keep a server's definitions, as they came."""
        ...

    async def recall(self, server: str) -> list[JsonObject] | None:
        """Return a server's definitions, None if they were not seen within a day."""
        ...
