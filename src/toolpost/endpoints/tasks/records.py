"""A task as a value and as a row, and every transaction on it, as scripts (`store/scripts.py`).

The process that runs a task owns it for a limited time, and renews that while it lives. Every change names the owner, so that a
process which was taken for dead cannot overwrite the outcome of the one that adopted its task.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NewType

from toolpost.base.ids import CallerId
from toolpost.endpoints.tasks.owners import NO_OWNER, OwnerId
from toolpost.fairness import Callers, over_limit
from toolpost.store.scripts import NOW, Row, Script, Statement

McpTaskId = NewType("McpTaskId", str)
Status = Literal["working", "completed", "failed", "cancelled"]

AT_ONCE: Final = 32
"""How many orphans one sweep adopts."""

COLUMNS: Final = (
    "id, caller, transport, tool, arguments, meta, is_repeatable, status, status_message, result, error, is_cancelled,"
    " attempts, owner, owned_until, created_at, updated_at, expires_at"
)
_NAMES: Final = COLUMNS.split(", ")

# Also if it ends later than a new one would: then the clock was set back while no gateway ran.
_ABANDONED: Final = "(owned_until < ?1 OR owned_until > ?2)"


@dataclass(frozen=True, kw_only=True)
class TaskRecord:
    """A task as it is stored."""

    id: McpTaskId
    caller: CallerId
    transport: str
    tool: str
    arguments: str | None
    """JSON, while the call may have to be run again; None if it may not, and when it has ended."""
    meta: str | None
    is_repeatable: int
    status: Status
    status_message: str | None
    result: str | None
    error: str | None
    is_cancelled: int
    """Whether the client has cancelled it; its owner reads this and ends it."""
    attempts: int
    owner: OwnerId
    owned_until: float
    created_at: float
    updated_at: float
    expires_at: float

    @property
    def orphaned_at(self) -> float:
        """When its ownership ended, for a task that no process runs."""
        return max(self.owned_until, self.updated_at)


@dataclass(frozen=True, kw_only=True)
class TaskOutcome:
    """How a task ended: the JSON of a result or of a JSON-RPC error."""

    status: Status
    message: str | None = None
    result: str | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class NewTask:
    """A task to store."""

    id: McpTaskId
    caller: CallerId
    transport: str
    tool: str
    arguments: str | None
    meta: str | None
    is_repeatable: bool


def begin(
    task: NewTask, owner: OwnerId, *, hold_s: float, keep_s: float, limit: int, callers: Callers
) -> Script[TaskRecord]:
    """Store a task that is about to run. Raises `QueueOverloaded` over `limit`, or over the caller's share of it."""
    ((now,),) = yield NOW
    ((own,),) = yield Statement("SELECT count(*) FROM mcp_tasks WHERE caller = ?1", (task.caller,))
    total = own
    if callers.are_several and own < callers.share_of(limit):
        ((total,),) = yield Statement("SELECT count(*) FROM mcp_tasks")
    if own >= callers.share_of(limit) or total >= limit:
        ((expires_at,),) = yield Statement(
            "SELECT min(expires_at) FROM mcp_tasks WHERE caller = ?1 OR ?2 = 0", (task.caller, own)
        )
        raise over_limit(
            "MCP tasks",
            own,
            limit,
            callers,
            retry_s=max(1, math.ceil((expires_at or now) - now)),
            hint="wait until some expire (tasks.ttl_s), or call without the tasks extension",
        )
    rows = yield Statement(
        f"INSERT INTO mcp_tasks ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'working', NULL, NULL, NULL, 0, 1,"
        f" ?8, ?9, ?10, ?10, ?11) ON CONFLICT (id) DO UPDATE SET owned_until = excluded.owned_until RETURNING {COLUMNS}",
        (
            task.id,
            task.caller,
            task.transport,
            task.tool,
            task.arguments,
            task.meta,
            int(task.is_repeatable),
            owner,
            now + hold_s,
            now,
            now + keep_s,
        ),
    )
    return _records_of(rows)[0]


def end(task_id: McpTaskId, owner: OwnerId, outcome: TaskOutcome, *, keep_s: float) -> Script[bool]:
    """Store the outcome of a task; return False, and store nothing, if it is no longer this owner's."""
    ((now,),) = yield NOW
    rows = yield Statement(
        "UPDATE mcp_tasks SET status = ?3, status_message = ?4, result = ?5, error = ?6, arguments = NULL, meta = NULL,"
        " owned_until = 0, updated_at = ?7, expires_at = ?8"
        " WHERE id = ?1 AND owner = ?2 AND (status = 'working' OR status = ?3) RETURNING id",
        (task_id, owner, outcome.status, outcome.message, outcome.result, outcome.error, now, now + keep_s),
    )
    return bool(rows)


def release(task_id: McpTaskId, owner: OwnerId) -> Script[None]:
    """End the ownership of a task, so that another process adopts it."""
    ((now,),) = yield NOW
    yield Statement(
        "UPDATE mcp_tasks SET owner = ?3, owned_until = 0, updated_at = ?4"
        " WHERE id = ?1 AND owner = ?2 AND status = 'working'",
        (task_id, owner, NO_OWNER, now),
    )


def find(task_id: McpTaskId, caller: CallerId) -> Script[TaskRecord | None]:
    """Return a task of this caller; None if there is none, or it has expired."""
    ((now,),) = yield NOW
    rows = yield Statement(
        f"SELECT {COLUMNS} FROM mcp_tasks WHERE id = ?1 AND caller = ?2 AND expires_at > ?3",
        (task_id, caller, now),
    )
    return _records_of(rows)[0] if rows else None


def read_one(task_id: McpTaskId, caller: CallerId | None) -> Script[TaskRecord | None]:
    """Return a task, of any caller if that is None; None if there is none, or it has expired."""
    if caller is not None:
        return (yield from find(task_id, caller))
    ((now,),) = yield NOW
    rows = yield Statement(f"SELECT {COLUMNS} FROM mcp_tasks WHERE id = ?1 AND expires_at > ?2", (task_id, now))
    return _records_of(rows)[0] if rows else None


def list_newest(
    caller: CallerId | None, status: str | None, before: tuple[float, str] | None, limit: int
) -> Script[list[TaskRecord]]:
    """Return tasks of a caller, or with None of all, the newest first, without results; `before` is where the last page ended."""
    ((now,),) = yield NOW
    where, values = ["expires_at > ?1"], [now]
    for column, value in (("caller", caller), ("status", status)):
        if value is not None:
            values.append(value)
            where.append(f"{column} = ?{len(values)}")
    if before is not None:
        values += before
        where.append(f"(created_at, id) < (?{len(values) - 1}, ?{len(values)})")
    # A list shows no results, and they may be large.
    columns = COLUMNS.replace("result, error", "NULL, NULL").replace("arguments, meta", "NULL, NULL")
    rows = yield Statement(
        f"SELECT {columns} FROM mcp_tasks WHERE {' AND '.join(where)} ORDER BY created_at DESC, id DESC LIMIT {limit}",
        tuple(values),
    )
    return _records_of(rows)


def request_cancel(task_id: McpTaskId, caller: CallerId) -> Script[TaskRecord | None]:
    """Mark a running task as cancelled by its client; return it, None if this caller has no such task."""
    yield Statement(
        "UPDATE mcp_tasks SET is_cancelled = 1 WHERE id = ?1 AND caller = ?2 AND status = 'working'",
        (task_id, caller),
    )
    return (yield from find(task_id, caller))


def renew(owner: OwnerId, *, hold_s: float) -> Script[dict[McpTaskId, bool]]:
    """Extend the ownership of all running tasks of an owner; return them, each with whether it was cancelled."""
    ((now,),) = yield NOW
    rows = yield Statement(
        "UPDATE mcp_tasks SET owned_until = ?2 WHERE owner = ?1 AND status = 'working' RETURNING id, is_cancelled",
        (owner, now + hold_s),
    )
    return {McpTaskId(name): bool(is_cancelled) for name, is_cancelled in rows}


def list_owners(but: OwnerId) -> Script[list[OwnerId]]:
    """Return the other owners of running tasks."""
    rows = yield Statement("SELECT DISTINCT owner FROM mcp_tasks WHERE status = 'working' AND owner <> ?1", (but,))
    return [OwnerId(owner) for (owner,) in rows]


def disown(owner: OwnerId) -> Script[None]:
    """End the ownership of all tasks of a process that has ended."""
    ((now,),) = yield NOW
    yield Statement(
        "UPDATE mcp_tasks SET owner = ?2, owned_until = 0, updated_at = ?3 WHERE owner = ?1 AND status = 'working'",
        (owner, NO_OWNER, now),
    )


def list_orphans(but: OwnerId, *, hold_s: float) -> Script[tuple[float, list[TaskRecord]]]:
    """Return the time, and running tasks whose ownership has ended."""
    ((now,),) = yield NOW
    rows = yield Statement(
        f"SELECT {COLUMNS} FROM mcp_tasks WHERE status = 'working' AND {_ABANDONED} AND owner <> ?3"
        f" ORDER BY owned_until LIMIT {AT_ONCE}",
        (now, now + 2 * hold_s, but),
    )
    return now, _records_of(rows)


def adopt(orphan: TaskRecord, owner: OwnerId, *, hold_s: float) -> Script[bool]:
    """Become the owner of an orphan; return False if another process was faster."""
    ((now,),) = yield NOW
    rows = yield Statement(
        "UPDATE mcp_tasks SET owner = ?4, owned_until = ?5, attempts = ?6"
        f" WHERE id = ?7 AND status = 'working' AND ((owner = ?3 AND {_ABANDONED}) OR owner = ?4) RETURNING id",
        (now, now + 2 * hold_s, orphan.owner, owner, now + hold_s, orphan.attempts + 1, orphan.id),
    )
    return bool(rows)


def delete_expired() -> Script[None]:
    """Delete tasks whose time to live has ended."""
    ((now,),) = yield NOW
    yield Statement("DELETE FROM mcp_tasks WHERE expires_at <= ?1", (now,))


def _records_of(rows: Iterable[Row]) -> list[TaskRecord]:
    return [TaskRecord(**dict(zip(_NAMES, row, strict=True))) for row in rows]
