"""Leases: tasks that workers have are acknowledged, renewed, ended, retried, cancelled, or expire.

Each lease has a token. A step that shows an older one raises `StaleLease`, so that a worker whose lease expired cannot end the
task of its successor. A client may leave the token out: then the caller is checked alone.

Ended tasks move from `bus_tasks` to `bus_archive`, so that the queue stays small.
"""

import random
from typing import Final, NamedTuple

import msgspec

from toolpost import Caller, CallerId, Forbidden
from toolpost.contracts import InvalidRequest
from toolpost.parts.bus.dispatch import Offer, dispatch, find_held_task, free_worker, offer_next, requeue
from toolpost.parts.bus.errors import StaleLease, unknown_task
from toolpost.parts.bus.outbox import make_update
from toolpost.parts.bus.submission import SubmitResult, dispatch_requeued, list_unmet_needs
from toolpost.parts.bus.tasks import (
    ENDED_TASK_COLUMNS,
    HOLDER,
    LEASE_COLUMNS,
    TASK_COLUMNS,
    BusPolicy,
    BusTask,
    EndedTask,
    LeasedTask,
    State,
    TaskId,
    find_archived,
    find_holder,
    find_lease,
    find_task,
    find_worker,
    insert_event,
    parse_tasks,
)
from toolpost.parts.bus.workers import delete_absent_workers, make_foreign_worker, require_worker
from toolpost.store import NOW, Batch, Script, Statement

_NAMES: Final = TASK_COLUMNS.split(", ")
_ENDED_VALUES: Final = {
    "state": "CAST(?2 AS TEXT)",
    "expires_at": "NULL",
    "reason": "CAST(?3 AS TEXT)",
    "result": "CAST(?4 AS TEXT)",
    "changed_at": "CAST(?5 AS DOUBLE PRECISION)",
}
_ARCHIVE: Final = (
    f"INSERT INTO bus_archive ({ENDED_TASK_COLUMNS})"
    f" SELECT {', '.join(_ENDED_VALUES.get(name, name) for name in _NAMES)}, CAST(?6 AS TEXT) FROM bus_tasks WHERE id = ?1"
    f" ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in (*_NAMES[1:], 'ended_by'))}"
)
_REQUEUED_VALUES: Final = {
    "state": "CAST(?4 AS TEXT)",
    "rank": "CAST(?2 AS DOUBLE PRECISION)",
    "changed_at": "CAST(?3 AS DOUBLE PRECISION)",
    **dict.fromkeys(("not_before", "attempt", "is_fetched"), "0"),
    **dict.fromkeys(("dedupe_key", "worker", "token", "expires_at", "reason", "result"), "NULL"),
}
_RESTORE: Final = (
    f"INSERT INTO bus_tasks ({TASK_COLUMNS}) SELECT {', '.join(_REQUEUED_VALUES.get(name, name) for name in _NAMES)}"
    f" FROM bus_archive WHERE id = ?1 RETURNING {TASK_COLUMNS}"
)
_RUN: Final = """
UPDATE bus_tasks SET state = 'running', attempt = ?2, expires_at = ?3, is_fetched = 1, changed_at = ?4 WHERE id = ?1
"""
# Both are read with the lease, in one statement: mostly no task depends on this one, and no caller waits for it.
_IS_NEEDED: Final = "EXISTS (SELECT 1 FROM bus_needs n WHERE n.needs = bus_tasks.id)"
_IS_AWAITED: Final = "EXISTS (SELECT 1 FROM bus_watches v WHERE v.task = bus_tasks.id)"
_LEASE_AND_WAITERS: Final = (
    f"SELECT {LEASE_COLUMNS}, {HOLDER}, {_IS_NEEDED}, {_IS_AWAITED} FROM bus_tasks WHERE id = ?1 /*lock*/"
)
_REMOVE: Final = "DELETE FROM bus_tasks WHERE id = ?1"
# `state || ''` keeps SQLite from using the index on states, which would read every waiting task.
_RELEASE: Final = """
UPDATE bus_tasks SET state = 'queued', changed_at = ?2, rank = CAST(?2 AS DOUBLE PRECISION) + priority * ?3
WHERE state || '' = 'waiting' AND id IN (SELECT task FROM bus_needs WHERE needs = ?1) AND NOT EXISTS (
    SELECT 1 FROM bus_needs n WHERE n.task = bus_tasks.id
    AND NOT EXISTS (SELECT 1 FROM bus_archive a WHERE a.id = n.needs AND a.state = 'done')
) RETURNING id
"""


class EndResult(NamedTuple):
    """A task that its worker has ended."""

    task: LeasedTask
    offered: list[Offer]
    """The offers of the same transaction."""
    is_awaited: bool
    """Whether a caller waits for its end (`reports.watch`)."""


def acknowledge(
    name: str, task_id: str, token: str | None, by: Caller, policy: BusPolicy, *, renews: bool
) -> Script[LeasedTask]:
    """Start an offered task, or renew the lease of a running one; `renews` says whether its process will renew it."""
    ((now,),) = yield NOW
    found = yield from find_lease(task_id)
    if found is None:
        raise _make_ended((yield from _require_ended(task_id)))
    task, caller = found
    if task.worker != name:
        worker = yield from find_worker(name)
        if worker is not None and worker.caller != by.id:
            raise make_foreign_worker(name)
        holder = "no worker has the task" if task.worker is None else f"the worker `{task.worker}` has the task"
        raise _make_stale_lease(task, holder)
    if caller != by.id:
        raise make_foreign_worker(name)
    _check_token(task, token)
    is_first = task.state == "offered"
    running = msgspec.structs.replace(
        task,
        state="running",
        attempt=task.attempt + is_first,
        expires_at=now + (policy.lease_s if renews else policy.lease_without_renewal_s),
        changed_at=now if is_first else task.changed_at,
    )
    statements = [Statement(_RUN, (task.id, running.attempt, running.expires_at, running.changed_at))]
    if is_first:
        statements.append(insert_event(task.id, now, "acknowledged", worker=name, attempt=running.attempt))
        statements += make_update(task.id, "begun", now, policy, detail=name)
    yield Batch(tuple(statements))
    return running


def end(
    task_id: str,
    state: State,
    token: str | None,
    by: Caller,
    policy: BusPolicy,
    *,
    result: str | None = None,
    reason: str | None = None,
) -> Script[EndResult]:
    """End a running task of a worker of this caller; the same end a second time changes nothing.

    Without a token it ends the task of whichever worker of the caller has it.
    """
    ((now,),) = yield NOW
    rows = yield Statement(_LEASE_AND_WAITERS, (task_id,))
    if not rows:
        ended = yield from _require_ended(task_id)
        _check_repeated_end(ended, state, token, by, result=result, reason=reason)
        return EndResult(ended, [], is_awaited=False)
    *row, caller, is_needed, is_awaited = rows[0]
    task = LeasedTask(*row)
    # A caller with an old token had the task before: it gets `StaleLease` below.
    if task.worker is not None and caller != by.id and token in (None, task.token):
        raise _make_foreign_task(task)
    _check_running(task, token)
    archived = _archive_statements(task, state, now, policy, result=result, reason=reason, ended_by=by.id)
    if not (state == "done" and is_needed):
        return EndResult(task, (yield from offer_next(task, now, policy, *archived)), is_awaited)
    # Tasks that waited for this one are queued first, so that they can be offered in the same transaction.
    yield Batch((*archived, free_worker(task, now, seen_at=now)))
    yield Statement(_RELEASE, (task.id, now, policy.priority_s))
    return EndResult(task, (yield from dispatch(now, policy)), is_awaited)


def _check_running(task: LeasedTask, token: str | None) -> None:
    if task.state in ("queued", "waiting") and token is not None:
        raise _make_stale_lease(task, "the lease expired, and the task is queued again")
    if task.state == "offered":
        if token is not None and token != task.token:
            raise _make_stale_lease(task, "the lease expired, and the task is offered to another worker")
        raise InvalidRequest(
            f"The task `{task.id}` has not been acknowledged.",
            hint="call `ack_task` first",
            bead_id=task.id,
            state=task.state,
        )
    if task.state != "running":
        raise InvalidRequest(
            f"No worker has the task `{task.id}`: it is {task.state}.", bead_id=task.id, state=task.state
        )
    _check_token(task, token)


def archive(task: LeasedTask, state: State, now: float, policy: BusPolicy, *, reason: str) -> Script[None]:
    """End a task that its worker did not end, and free the worker if there is one."""
    yield Batch((*_archive_statements(task, state, now, policy, reason=reason), free_worker(task, now)))


def _archive_statements(
    task: LeasedTask,
    state: State,
    now: float,
    policy: BusPolicy,
    *,
    result: str | None = None,
    reason: str | None = None,
    ended_by: CallerId | None = None,
) -> tuple[Statement, ...]:
    """Return the statements that move a task, whose row is locked, to the archive."""
    return (
        Statement(_ARCHIVE, (task.id, state, reason, result, now, ended_by)),
        Statement(_REMOVE, (task.id,)),
        insert_event(task.id, now, state, worker=task.worker, attempt=task.attempt, detail=reason),
        *make_update(task.id, state, now, policy, detail=result if state == "done" else reason),
    )


def retry(task_id: str, by: Caller, policy: BusPolicy) -> Script[SubmitResult]:
    """Queue a task again: taken from its worker, or restored from the archive.

    Raises `Forbidden` unless the caller submitted it, its worker has it or ended it, or it is an administrator.
    """
    ((now,),) = yield NOW
    task = yield from find_task(task_id)
    if task is None:
        ended = yield from _require_ended(task_id)
        _check_may_retry(ended, ended.ended_by, by)
        task = yield from _restore(ended, now, policy)
    else:
        _check_may_retry(task, (yield from find_holder(task_id)), by)
        if task.state in ("offered", "running"):
            yield from requeue(task, now, "taken away")
    return (yield from dispatch_requeued(task, now, policy))


def _check_may_retry(task: BusTask, holder: CallerId | None, by: Caller) -> None:
    if not by.is_admin and by.id not in (task.submitted_by, holder):
        raise Forbidden(
            f"The task `{task.id}` was submitted by another caller, and is not with a worker of yours.",
            hint="its submitter, the caller whose worker has it, or an administrator can retry it",
            bead_id=task.id,
            state=task.state,
        )


def cancel(task_id: str, policy: BusPolicy, reason: str) -> Script[tuple[BusTask, list[Offer]]]:
    """Cancel a task in any state but the ended ones; one that is cancelled already is returned as it is."""
    ((now,),) = yield NOW
    task = yield from find_task(task_id)
    if task is None:
        ended = yield from _require_ended(task_id)
        if ended.state != "cancelled":
            raise _make_ended(ended)
        return ended, []
    yield from archive(task, "cancelled", now, policy, reason=reason)
    return task, (yield from dispatch(now, policy))


def reset(
    name: str, by: Caller, policy: BusPolicy, *, leaves: bool = False
) -> Script[tuple[TaskId | None, list[Offer]]]:
    """Make a worker of this caller idle, for an administrator any worker: its task is queued again, its poll ends.

    With `leaves`, its process ends: the worker is deleted, unless it runs a task. That task keeps its lease, as the agent that
    works on it may outlive the process and end it through another one.
    """
    ((now,),) = yield NOW
    worker = yield from require_worker(name, by)
    held = yield from find_held_task(worker)
    if leaves and held is not None and held.state == "running":
        yield Statement("UPDATE bus_workers SET poll = NULL, poll_until = NULL WHERE name = ?1", (name,))
        return None, []
    if held is not None:
        yield from requeue(held, now, "reset")
    # `resets` tells a waiting poll that it was ended by a reset; `seen_at = 0` keeps offers away until the worker polls again.
    yield Statement(
        "UPDATE bus_workers SET task = NULL, poll = NULL, poll_until = NULL, idle_since = ?2, seen_at = 0,"
        " resets = resets + 1 WHERE name = ?1",
        (name, now),
    )
    if leaves:
        yield Statement("DELETE FROM bus_workers WHERE name = ?1", (name,))
    return (held.id if held is not None else None), (yield from dispatch(now, policy))


def shorten_leases(policy: BusPolicy) -> Script[None]:
    """Limit leases and pauses to what they would be if they started now.

    For a server that starts: if the clock was set back while no server ran, they would last as much longer.
    """
    ((now,),) = yield NOW
    lease_end = now + max(policy.offer_s, policy.lease_s, policy.lease_without_renewal_s)
    yield Statement(
        "UPDATE bus_tasks SET expires_at = ?1 WHERE worker IS NOT NULL AND expires_at > ?1",
        (lease_end,),
    )
    yield Statement(
        "UPDATE bus_tasks SET not_before = ?1 WHERE state = 'queued' AND not_before > ?1",
        (now + policy.retry_limit_s,),
    )


def sweep(policy: BusPolicy) -> Script[tuple[float | None, list[Offer], list[BusTask]]]:
    """Queue or archive the tasks whose lease expired, and offer queued ones.

    Returns the seconds until the next lease or pause ends (None without any), the offers, and the expired tasks as they were.
    """
    ((now,),) = yield NOW
    expired = parse_tasks(
        (
            yield Statement(
                f"SELECT {TASK_COLUMNS} FROM bus_tasks WHERE worker IS NOT NULL AND expires_at <= ?1"
                " ORDER BY expires_at LIMIT 100 /*skip locked*/",
                (now,),
            )
        )
    )
    for task in expired:
        yield from _expire(task, now, policy)
    yield delete_absent_workers(now, policy)
    yield Statement("DELETE FROM bus_watches WHERE until < ?1", (now,))
    offered = yield from dispatch(now, policy)
    rows = yield Statement(
        "SELECT min(due) FROM (SELECT min(expires_at) AS due FROM bus_tasks WHERE worker IS NOT NULL"
        " UNION ALL SELECT min(not_before) FROM bus_tasks WHERE state = 'queued' AND not_before > ?1) AS times",
        (now,),
    )
    due = rows[0][0]
    return (None if due is None else max(0.0, due - now)), offered, expired


def _expire(task: BusTask, now: float, policy: BusPolicy) -> Script[None]:
    if task.state == "offered":
        # The worker did not acknowledge: it gets no further offer until it polls again.
        yield Statement(
            "UPDATE bus_workers SET seen_at = 0, poll = NULL, poll_until = NULL WHERE name = ?1", (task.worker,)
        )
        yield from requeue(task, now, "not acknowledged")
    elif is_out_of_attempts(task, policy):
        yield from archive(task, "dead", now, policy, reason=f"its worker went silent {task.attempt} times")
    else:
        yield from requeue(task, now, "lease ran out", not_before=now + backoff_s(task.attempt, policy))


def is_out_of_attempts(task: BusTask, policy: BusPolicy) -> bool:
    """Whether a task whose lease expired is not tried again."""
    return task.state != "offered" and task.attempt >= policy.attempts


def backoff_s(attempt: int, policy: BusPolicy) -> float:
    """Return the delay after so many attempts: doubled each time, with jitter."""
    usual = policy.retry_s * 2.0 ** (attempt - 1)
    return min(policy.retry_limit_s, usual * random.uniform(0.8, 1.2))  # noqa: S311


def _require_ended(task_id: str) -> Script[EndedTask]:
    ended = yield from find_archived(task_id)
    if ended is None:
        raise unknown_task(task_id)
    return ended


def _check_repeated_end(
    ended: EndedTask, state: State, token: str | None, by: Caller, *, result: str | None, reason: str | None
) -> None:
    """Refuse to end a task again, unless in the same way as it was ended."""
    if token is not None and token != ended.token:
        raise _make_stale_lease(ended, f"the task is over: {ended.state}")
    if ended.ended_by not in (by.id, None):
        raise _make_foreign_task(ended)
    if ended.state != state:
        raise _make_ended(ended)
    # A repetition without a result only confirms that the task is done.
    if (state == "done" and result is not None and not _is_same_json(result, ended.result)) or reason != ended.reason:
        what = "result" if state == "done" else "reason"
        raise InvalidRequest(
            f"The task `{ended.id}` is over with another {what}, which is kept.",
            hint="`retry_task` runs it again",
            bead_id=ended.id,
            state=ended.state,
        )


def _is_same_json(text: str, other: str | None) -> bool:
    """Whether two texts are the same JSON, whatever the order of keys."""
    if other is None or text == other:
        return text == other
    first, second = (msgspec.json.encode(msgspec.json.decode(one), order="deterministic") for one in (text, other))
    return first == second


def _make_ended(ended: EndedTask) -> InvalidRequest:
    return InvalidRequest(f"The task `{ended.id}` is over: {ended.state}.", bead_id=ended.id, state=ended.state)


def _restore(ended: EndedTask, now: float, policy: BusPolicy) -> Script[BusTask]:
    """Move a task from the archive to the queue, without its dedupe key, which another task may have by now."""
    rank = now + ended.priority * policy.priority_s
    state = "waiting" if (yield from list_unmet_needs(ended.id)) else "queued"
    rows = yield Statement(_RESTORE, (ended.id, rank, now, state))
    yield Statement("DELETE FROM bus_archive WHERE id = ?1", (ended.id,))
    yield Batch((insert_event(ended.id, now, "retried"), *make_update(ended.id, "retried", now, policy)))
    return parse_tasks(rows)[0]


def _check_token(task: LeasedTask, token: str | None) -> None:
    if token is not None and token != task.token:
        raise _make_stale_lease(task, "the task was offered again since")


def _make_foreign_task(task: LeasedTask) -> Forbidden:
    return Forbidden(
        f"The task `{task.id}` was given to the worker `{task.worker}`, which another caller registered.",
        hint="only that caller can end it; `poll_task` gives you a task of your own",
        bead_id=task.id,
        state=task.state,
    )


def _make_stale_lease(task: LeasedTask, why: str) -> StaleLease:
    return StaleLease(
        f"The lease on the task `{task.id}` is no longer yours: {why}.",
        hint="stop working on it, and poll for another",
        bead_id=task.id,
        state=task.state,
    )
