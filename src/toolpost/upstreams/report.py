"""A server as others see it: its state, as `toolpost servers` shows it, and its own description besides its tools."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self

from toolpost.base.ids import JsonObject
from toolpost.protocol.extensions import select_extensions

INSTRUCTIONS_LIMIT: Final = 16_000
"""How many characters of a server's instructions are kept; what a client is shown is limited by a setting."""


class ServerState(StrEnum):
    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    BUSY = "busy"
    DRAINING = "draining"
    FAILED = "failed"
    SUSPENDED = "suspended"


@dataclass(frozen=True, kw_only=True)
class ServerReport:
    name: str
    state: ServerState
    transport: str
    version: str | None
    pids: tuple[int, ...]
    memory_bytes: int | None
    in_flight: int
    restarts: int
    last_error: str | None
    last_error_at: float | None
    """In seconds since 1970."""
    stderr_tail: tuple[str, ...]
    hint: str | None = None
    """What can be done about the last error."""
    protocol_errors: int = 0
    """How many of its messages on stdio made no sense."""
    losses: tuple[float, ...] = ()
    """When its processes or connections last ended unasked, in seconds since 1970."""
    degraded: str | None = None
    """Why some of its tools are left out; None if none are."""


@dataclass(frozen=True, kw_only=True)
class ServerProfile:
    """A server's own words, and the extensions that it declares, kept while it is down. All of it is untrusted."""

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


UNKNOWN_PROFILE: Final = ServerProfile()
