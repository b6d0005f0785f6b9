"""Every table of a store, in the order in which they are copied.

Both databases have the same tables and columns, and return the same values: texts, integers, floats and bytes. A test compares
this list with the tables that the migrations create.
"""

from typing import Final

from toolpost.store.audit_contents import AUDIT_CONTENTS
from toolpost.store.chain import COLUMNS
from toolpost.store.rows import Table

AUDIT: Final = Table(name="audit", key=("seq",), columns=COLUMNS)
"""Copied first and apart: its chain proves which store the rest belongs to."""

KEYS: Final = Table(name="keys", key=("name",), columns=("name", "made_at", "secret"))
"""Copied too, because what was signed with them must stay verifiable, but no sign of foreign data: any gateway makes some."""

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
    Table(
        name="known_tools",
        key=("server", "owner"),
        columns=("server", "owner", "seen_at", "definitions", "build", "description", "offers"),
    ),
    Table(name="pins", key=("server", "tool"), columns=("server", "tool", "pinned_at", "definition", "seen_at")),
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
    AUDIT_CONTENTS,
    Table(
        name="credentials",
        key=("server", "owner", "name"),
        columns=("server", "owner", "name", "changed_at", "value"),
    ),
    Table(name="export_cursors", key=("name",), columns=("name", "seq", "hash", "holder", "held_until")),
    Table(name="shelf", key=("plugin", "owner", "id"), columns=("plugin", "owner", "id", "changed_at", "value")),
)

NOT_COPIED: Final = frozenset(
    {"migrations", "audit_head", "audit_segments", "store_clock", "bus_watches", "credential_leases", "verdicts"}
)
"""Tables whose rows belong to one store alone, can be made again, or are copied with the audit."""
