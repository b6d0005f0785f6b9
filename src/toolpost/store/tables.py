"""The kernel's tables, in the order in which they are copied. Those of parts are found in the database (`part_migrations.py`).

Both databases have the same tables and columns, and return the same values: texts, integers, floats and bytes. A test compares
this list with the tables that the kernel's migrations create.
"""

from typing import Final

from toolpost.store.audit_contents import AUDIT_CONTENTS
from toolpost.store.chain import COLUMNS
from toolpost.store.rows import Table

AUDIT: Final = Table(name="audit", key=("seq",), columns=COLUMNS)
"""Copied first and apart: its chain proves which store the rest belongs to."""

KEYS: Final = Table(name="keys", key=("name",), columns=("name", "made_at", "secret"))
"""Copied too, because what was signed with them must stay verifiable, but no sign of foreign data: any gateway makes some."""

TABLES: Final = (
    Table(
        name="known_tools",
        key=("server", "owner"),
        columns=("server", "owner", "seen_at", "definitions", "build", "description", "offers"),
    ),
    Table(name="pins", key=("server", "tool"), columns=("server", "tool", "pinned_at", "definition", "seen_at")),
    Table(name="seen_tools", key=("caller", "session"), columns=("caller", "session", "used_at", "tools")),
    Table(
        name="mcp_tasks",
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
    AUDIT_CONTENTS,
    Table(
        name="callers",
        key=("name",),
        columns=("name", "token_hash", "tags", "tools", "mode", "made_at", "made_by"),
    ),
    Table(
        name="credentials",
        key=("server", "owner", "name"),
        columns=("server", "owner", "name", "changed_at", "value"),
    ),
    Table(name="export_cursors", key=("name",), columns=("name", "seq", "hash", "holder", "held_until")),
    Table(name="key_values", key=("plugin", "owner", "id"), columns=("plugin", "owner", "id", "changed_at", "value")),
)

NOT_COPIED: Final = frozenset(
    {
        "migrations",
        "part_migrations",
        "audit_head",
        "audit_segments",
        "store_clock",
        "credential_leases",
        "verdicts",
    }
)
"""Tables whose rows belong to one store alone, can be made again, or are copied with the audit."""
