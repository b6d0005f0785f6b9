"""Every table of a store, in the order in which they are copied; and what copying asks of a store.

Both kinds of store have the same tables with the same columns, whose values read the same: texts, whole numbers, floats
and bytes. A test compares this list with what the migrations make.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

Row = tuple[Any, ...]
Key = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table, and what tells its rows apart."""

    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    """All of them, those of the key first."""

    def key_of(self, row: Row) -> Key:
        """Return what tells this row apart."""
        return row[: len(self.key)]


AUDIT: Final = Table(
    name="audit",
    key=("seq",),
    columns=(
        "seq",
        "at_utc",
        "call_id",
        "trace_id",
        "caller",
        "tool",
        "source",
        "contract",
        "schema_version",
        "tooling_version",
        "arguments",
        "outcome",
        "code",
        "duration_ms",
        "result",
        "previous",
        "hash",
    ),
)
"""Copied first and by itself: its chain proves where the rest comes from."""

_TASK: Final = (
    "id",
    "state",
    "priority",
    "payload",
    "dedupe_key",
    "submitted_by",
    "submitted_at",
    "rank",
    "not_before",
    "attempt",
    "leases",
    "worker",
    "token",
    "is_fetched",
    "expires_at",
    "reason",
    "result",
    "changed_at",
)

TABLES: Final = (
    Table(name="known_tools", key=("server",), columns=("server", "seen_at", "definitions", "build", "description")),
    Table(name="pins", key=("server", "tool"), columns=("server", "tool", "pinned_at", "definition")),
    Table(name="seen_tools", key=("caller", "session"), columns=("caller", "session", "used_at", "tools")),
    Table(name="bus_tasks", key=("id",), columns=_TASK),
    Table(name="bus_archive", key=("id",), columns=(*_TASK, "ended_by")),
    Table(name="bus_needs", key=("task", "needs"), columns=("task", "needs")),
    Table(
        name="bus_workers",
        key=("name",),
        columns=(
            "name",
            "owner",
            "registered_at",
            "seen_at",
            "idle_since",
            "task",
            "poll",
            "poll_until",
            "resets",
            "caller",
        ),
    ),
    Table(name="bus_events", key=("task", "seq"), columns=("task", "seq", "at", "kind", "worker", "attempt", "detail")),
    Table(
        name="deferred_calls",
        key=("id",),
        columns=(
            "id",
            "caller",
            "transport",
            "tool",
            "arguments",
            "meta",
            "is_repeatable",
            "status",
            "status_message",
            "result",
            "error",
            "is_cancelled",
            "attempts",
            "owner",
            "owned_until",
            "created_at",
            "updated_at",
            "expires_at",
        ),
    ),
    Table(name="bus_outbox", key=("seq",), columns=("seq", "task", "kind", "detail", "tries", "not_before")),
    Table(
        name="threads",
        key=("id",),
        columns=(
            "id",
            "caller",
            "title",
            "agent",
            "model",
            "created_at",
            "changed_at",
            "last_seq",
            "session",
            "session_profile",
            "session_told",
        ),
    ),
    Table(
        name="thread_messages",
        key=("thread", "seq"),
        columns=("thread", "seq", "turn", "role", "text", "at_utc", "details"),
    ),
    Table(
        name="thread_turns",
        key=("id",),
        columns=(
            "id",
            "thread",
            "state",
            "trace_id",
            "runner",
            "started_at",
            "alive_at",
            "ended_at",
            "partial",
            "error",
            "stop_asked",
        ),
    ),
    Table(name="shelf", key=("plugin", "owner", "id"), columns=("plugin", "owner", "id", "changed_at", "value")),
)

OWN: Final = frozenset({"migrations", "audit_head", "keys", "store_clock", "bus_watches"})
"""What each store writes for itself."""


class Tables(Protocol):
    """A store's rows, as they are."""

    async def chunk(self, table: Table, after: Key | None, limit: int) -> list[Row]:
        """Return rows in the order of their keys, past `after`."""
        ...

    async def up_to(self, table: Table, after: Key | None, last: Key | None) -> list[Row]:
        """Return rows in the order of their keys, past `after`, up to and with `last`, or all of the rest."""
        ...

    async def count(self, table: Table) -> int:
        """Return how many rows there are."""
        ...

    async def mend(self, table: Table, *, gone: Sequence[Key], rows: Sequence[Row]) -> None:
        """Remove some rows and write others, new or not, in one transaction."""
        ...

    async def extend_audit(self, rows: Sequence[Row]) -> None:
        """Add the next records of a chain, and move its head, in one transaction."""
        ...
