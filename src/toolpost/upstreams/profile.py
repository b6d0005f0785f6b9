"""What a server says about itself besides its tools: as it was agreed, within limits, and kept while the server is down."""

from dataclasses import dataclass, field
from typing import Final, Self

from toolpost.base.ids import JsonObject
from toolpost.protocol.extensions import select_extensions

INSTRUCTIONS_LIMIT: Final = 16_000
"""How many characters of a server's instructions are kept; what a client is shown is limited by a setting."""


@dataclass(frozen=True, kw_only=True)
class ServerProfile:
    """A server's own words, and the extensions that it declares. All of it is untrusted."""

    description: str = ""
    """Title, description and instructions as one text, cut short: its tools are found by these words."""
    instructions: str = ""
    extensions: JsonObject = field(default_factory=dict)
    """`extensions` and `experimental` of its capabilities, as `select_extensions` returns them."""

    @property
    def offers(self) -> JsonObject:
        """All but the description, as it is stored."""
        return {"instructions": self.instructions, **self.extensions}

    @classmethod
    def recall(cls, description: str, offers: JsonObject) -> Self:
        """Make a profile of what was stored."""
        return cls(
            description=description,
            instructions=str(offers.get("instructions") or ""),
            extensions=select_extensions(offers),
        )


UNKNOWN: Final = ServerProfile()
