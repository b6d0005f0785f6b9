"""A deferred call as a value and as a row, and every transaction on it. No tasks, no clock of our own."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NewType

from toolpost.base.ids import CallerId
from toolpost.parts.tasks.owners import NOBODY, OwnerId
from toolpost.shares import Callers, over_limit
from toolpost.store.scripts import NOW, Row, Script, Statement

DeferredId = NewType("DeferredId", str)
Status = Literal["working", "completed", "failed", "cancelled"]

AT_ONCE: Final = 32
"""How many calls are taken over in one round."""

COLUMNS: Final = (
    "id, caller, transport, tool, arguments, meta, is_repeatable, status, status_message, result, error, is_cancelled,"
    " attempts, owner, owned_until, created_at, updated_at, expires_at"
)
_NAMES: Final = COLUMNS.split(", ")

# Nobody owns a call for longer than it could be from now on: then the clock was set back while no gateway ran.
_ABANDONED: Final = "(owned_until < ?1 OR owned_until > ?2)"


@dataclass(frozen=True, kw_only=True)
class Deferred:
    """A call that outlives its request, as the store has it."""

    id: DeferredId
    caller: CallerId
    transport: str
    tool: str
    arguments: str | None
    """As JSON, while it may have to be run again; None when it may not, and when it is over."""
    meta: str | None
    is_repeatable: int
    status: Status
    status_message: str | None
    result: str | None
    error: str | None
    is_cancelled: int
    """Whether the client has called it off; it ends when its owner has heard of it."""
    attempts: int
    owner: OwnerId
    owned_until: float
    created_at: float
    updated_at: float
    expires_at: float

    @property
    def alone_since(self) -> float:
        """Since when nobody carries it, if nobody does."""
        return max(self.owned_until, self.updated_at)


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What became of a call: the JSON of a result or of a JSON-RPC error."""

    status: Status
    message: str | None = None
    result: str | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A call that is to be kept."""

    id: DeferredId
    caller: CallerId
    transport: str
    tool: str
    arguments: str | None
    meta: str | None
    is_repeatable: bool


def begin(
    wanted: Wanted, owner: OwnerId, *, hold_s: float, keep_s: float, limit: int, callers: Callers
) -> Script[Deferred]:
    """Keep a call that is about to run; no more than `limit` of them are kept, and of one caller no more than their share."""
    ((now,),) = yield NOW
    ((own,),) = yield Statement("SELECT count(*) FROM deferred_calls WHERE caller = ?1", (wanted.caller,))
    kept = own
    if callers.are_several and own < callers.share_of(limit):
        ((kept,),) = yield Statement("SELECT count(*) FROM deferred_calls")
    if own >= callers.share_of(limit) or kept >= limit:
        ((expires_at,),) = yield Statement(
            "SELECT min(expires_at) FROM deferred_calls WHERE caller = ?1 OR ?2 = 0", (wanted.caller, own)
        )
        raise over_limit(
            "MCP tasks",
            own,
            limit,
            callers,
            retry_s=max(1, math.ceil((expires_at or now) - now)),
            hint="they are forgotten one by one as their time to live ends: call without the extension meanwhile",
        )
    rows = yield Statement(
        f"INSERT INTO deferred_calls ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'working', NULL, NULL, NULL, 0, 1,"
        f" ?8, ?9, ?10, ?10, ?11) ON CONFLICT (id) DO UPDATE SET owned_until = excluded.owned_until RETURNING {COLUMNS}",
        (
            wanted.id,
            wanted.caller,
            wanted.transport,
            wanted.tool,
            wanted.arguments,
            wanted.meta,
            int(wanted.is_repeatable),
            owner,
            now + hold_s,
            now,
            now + keep_s,
        ),
    )
    return _read(rows)[0]


def end(deferred: DeferredId, owner: OwnerId, ending: Ending, *, keep_s: float) -> Script[bool]:
    """Write down what became of a call; False if it is no longer this owner's, and nothing was written."""
    ((now,),) = yield NOW
    rows = yield Statement(
        "UPDATE deferred_calls SET status = ?3, status_message = ?4, result = ?5, error = ?6, arguments = NULL, meta = NULL,"
        " owned_until = 0, updated_at = ?7, expires_at = ?8"
        " WHERE id = ?1 AND owner = ?2 AND (status = 'working' OR status = ?3) RETURNING id",
        (deferred, owner, ending.status, ending.message, ending.result, ending.error, now, now + keep_s),
    )
    return bool(rows)


def let_go(deferred: DeferredId, owner: OwnerId) -> Script[None]:
    """Leave a call to whoever takes it over."""
    ((now,),) = yield NOW
    yield Statement(
        "UPDATE deferred_calls SET owner = ?3, owned_until = 0, updated_at = ?4"
        " WHERE id = ?1 AND owner = ?2 AND status = 'working'",
        (deferred, owner, NOBODY, now),
    )


def find(deferred: DeferredId, caller: CallerId) -> Script[Deferred | None]:
    """Find a call of this caller that is still kept."""
    ((now,),) = yield NOW
    rows = yield Statement(
        f"SELECT {COLUMNS} FROM deferred_calls WHERE id = ?1 AND caller = ?2 AND expires_at > ?3",
        (deferred, caller, now),
    )
    return _read(rows)[0] if rows else None


def call_off(deferred: DeferredId, caller: CallerId) -> Script[Deferred | None]:
    """Note that the client wants no more of a call; returns it, None if this caller has no such call."""
    yield Statement(
        "UPDATE deferred_calls SET is_cancelled = 1 WHERE id = ?1 AND caller = ?2 AND status = 'working'",
        (deferred, caller),
    )
    return (yield from find(deferred, caller))


def renew(owner: OwnerId, *, hold_s: float) -> Script[dict[DeferredId, bool]]:
    """Go on owning what one owns; returns that, and for each call whether it was called off."""
    ((now,),) = yield NOW
    rows = yield Statement(
        "UPDATE deferred_calls SET owned_until = ?2 WHERE owner = ?1 AND status = 'working' RETURNING id, is_cancelled",
        (owner, now + hold_s),
    )
    return {DeferredId(name): bool(is_cancelled) for name, is_cancelled in rows}


def owners(but: OwnerId) -> Script[list[OwnerId]]:
    """Name everybody else who owns a call that runs."""
    rows = yield Statement("SELECT DISTINCT owner FROM deferred_calls WHERE status = 'working' AND owner <> ?1", (but,))
    return [OwnerId(owner) for (owner,) in rows]


def disown(owner: OwnerId) -> Script[None]:
    """Take from an owner who is gone what they had."""
    ((now,),) = yield NOW
    yield Statement(
        "UPDATE deferred_calls SET owner = ?2, owned_until = 0, updated_at = ?3 WHERE owner = ?1 AND status = 'working'",
        (owner, NOBODY, now),
    )


def orphans(but: OwnerId, *, hold_s: float) -> Script[tuple[float, list[Deferred]]]:
    """Find calls that nobody carries any more, and say what time it is."""
    ((now,),) = yield NOW
    rows = yield Statement(
        f"SELECT {COLUMNS} FROM deferred_calls WHERE status = 'working' AND {_ABANDONED} AND owner <> ?3"
        f" ORDER BY owned_until LIMIT {AT_ONCE}",
        (now, now + 2 * hold_s, but),
    )
    return now, _read(rows)


def adopt(orphan: Deferred, owner: OwnerId, *, hold_s: float) -> Script[bool]:
    """Take a call over, unless somebody else was faster."""
    ((now,),) = yield NOW
    rows = yield Statement(
        "UPDATE deferred_calls SET owner = ?4, owned_until = ?5, attempts = ?6"
        f" WHERE id = ?7 AND status = 'working' AND ((owner = ?3 AND {_ABANDONED}) OR owner = ?4) RETURNING id",
        (now, now + 2 * hold_s, orphan.owner, owner, now + hold_s, orphan.attempts + 1, orphan.id),
    )
    return bool(rows)


def forget_expired() -> Script[None]:
    """Remove what nobody may ask for any more."""
    ((now,),) = yield NOW
    yield Statement("DELETE FROM deferred_calls WHERE expires_at <= ?1", (now,))


def _read(rows: Iterable[Row]) -> list[Deferred]:
    return [Deferred(**dict(zip(_NAMES, row, strict=True))) for row in rows]
