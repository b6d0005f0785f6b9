"""The state of a server, as `toolpost servers` shows it."""

from dataclasses import dataclass
from enum import StrEnum


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
    oddities: int = 0
    """How many of its messages on stdio made no sense."""
