"""What becomes of a task that a worker has: acknowledged, done, failed, taken away, given up. Always under its token."""

import random
from typing import Final, NamedTuple

import msgspec

from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.contracts.errors import Forbidden, InvalidRequest, NotFound, StaleLease
from toolpost.parts.bus.dispatch import Offer, dispatch, find_held, free_worker, pass_on, requeue
from toolpost.parts.bus.outbox import make_update
from toolpost.parts.bus.polls import forget_workers, make_not_yours, require_worker
from toolpost.parts.bus.submission import Submitted, list_unmet_of, resubmit
from toolpost.parts.bus.tasks import (
    COLUMNS,
    ENDED_COLUMNS,
    HELD_BY,
    LEASE_COLUMNS,
    EndedTask,
    Lease,
    State,
    Task,
    TaskId,
    Times,
    WorkerName,
    find_archived,
    find_holder,
    find_lease,
    find_task,
    find_worker,
    note,
    parse_tasks,
)
from toolpost.store.scripts import NOW, Script, Statement, Together

_NAMES: Final = COLUMNS.split(", ")
_CHANGED: Final = {
    "state": "CAST(?2 AS TEXT)",
    "expires_at": "NULL",
    "reason": "CAST(?3 AS TEXT)",
    "result": "CAST(?4 AS TEXT)",
    "changed_at": "CAST(?5 AS DOUBLE PRECISION)",
}
_ARCHIVE: Final = (
    f"INSERT INTO bus_archive ({ENDED_COLUMNS})"
    f" SELECT {', '.join(_CHANGED.get(name, name) for name in _NAMES)}, CAST(?6 AS TEXT) FROM bus_tasks WHERE id = ?1"
    f" ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in (*_NAMES[1:], 'ended_by'))}"
)
_FRESH: Final = {
    "state": "CAST(?4 AS TEXT)",
    "rank": "CAST(?2 AS DOUBLE PRECISION)",
    "changed_at": "CAST(?3 AS DOUBLE PRECISION)",
    **dict.fromkeys(("not_before", "attempt", "is_fetched"), "0"),
    **dict.fromkeys(("dedupe_key", "worker", "token", "expires_at", "reason", "result"), "NULL"),
}
_REVIVE: Final = (
    f"INSERT INTO bus_tasks ({COLUMNS}) SELECT {', '.join(_FRESH.get(name, name) for name in _NAMES)}"
    f" FROM bus_archive WHERE id = ?1 RETURNING {COLUMNS}"
)
_BEGIN: Final = """
UPDATE bus_tasks SET state = 'running', attempt = ?2, expires_at = ?3, is_fetched = 1, changed_at = ?4 WHERE id = ?1
"""
# Whether another task waits for this one is asked on the way: almost never.
_IS_NEEDED: Final = "EXISTS (SELECT 1 FROM bus_needs n WHERE n.needs = bus_tasks.id)"
_IS_AWAITED: Final = "EXISTS (SELECT 1 FROM bus_watches v WHERE v.task = bus_tasks.id)"
_HELD: Final = f"SELECT {LEASE_COLUMNS}, {HELD_BY}, {_IS_NEEDED}, {_IS_AWAITED} FROM bus_tasks WHERE id = ?1 /*lock*/"
_REMOVE: Final = "DELETE FROM bus_tasks WHERE id = ?1"
# By its id, not by its state: many may wait.
_RELEASE: Final = """
UPDATE bus_tasks SET state = 'queued', changed_at = ?2, rank = CAST(?2 AS DOUBLE PRECISION) + priority * ?3
WHERE state || '' = 'waiting' AND id IN (SELECT task FROM bus_needs WHERE needs = ?1) AND NOT EXISTS (
    SELECT 1 FROM bus_needs n WHERE n.task = bus_tasks.id
    AND NOT EXISTS (SELECT 1 FROM bus_archive a WHERE a.id = n.needs AND a.state = 'done')
) RETURNING id
"""


class EndedLease(NamedTuple):
    """A task that its worker has ended."""

    task: Lease
    offered: list[Offer]
    """The offers that follow."""
    is_awaited: bool
    """Whether somebody waits for its end (`results.watch`)."""


def acknowledge(name: str, task_id: str, token: str | None, by: Caller, times: Times, *, renews: bool) -> Script[Lease]:
    """Begin a task, or say that it goes on: both extend the lease."""
    ((now,),) = yield NOW
    task, caller = yield from _require_lease(task_id)
    if task.worker != name:
        worker = yield from find_worker(name)
        if worker is not None and worker.caller != by.id:
            raise make_not_yours(name)
        raise _make_stale(task, f"it is with {_describe_holder(task)}")
    if caller != by.id:
        raise make_not_yours(name)
    _check_token(task, token)
    is_first = task.state == "offered"
    begun = msgspec.structs.replace(
        task,
        state="running",
        attempt=task.attempt + is_first,
        expires_at=now + (times.run_s if renews else times.stuck_s),
        changed_at=now if is_first else task.changed_at,
    )
    written = [Statement(_BEGIN, (task.id, begun.attempt, begun.expires_at, begun.changed_at))]
    if is_first:
        written += (note(task.id, now, "acknowledged", worker=name, attempt=begun.attempt),)
        written += make_update(task.id, "begun", now, times, detail=name)
    yield Together(tuple(written))
    return begun


def end(
    task_id: str,
    state: State,
    token: str | None,
    by: Caller,
    times: Times,
    *,
    result: str | None = None,
    reason: str | None = None,
) -> Script[EndedLease]:
    """End a task that a worker of this caller runs; saying it twice is saying it once.

    Without a token the word counts for whichever of the caller's workers has the task.
    """
    ((now,),) = yield NOW
    rows = yield Statement(_HELD, (task_id,))
    if not rows:
        over = yield from _require_ended(task_id)
        _check_repetition(over, state, token, by, result=result, reason=reason)
        return EndedLease(over, [], is_awaited=False)
    *row, caller, is_needed, is_awaited = rows[0]
    task = Lease(*row)
    # Who shows an old token had the task before, and is told so below.
    if task.worker is not None and caller != by.id and token in (None, task.token):
        raise _make_not_yours(task)
    _check_running(task, token)
    written = _make_archive(task, state, now, times, result=result, reason=reason, ended_by=by.id)
    if not (state == "done" and is_needed):
        return EndedLease(task, (yield from pass_on(task, now, times, *written)), is_awaited)
    yield Together((*written, free_worker(task, now, seen_at=now)))
    yield Statement(_RELEASE, (task.id, now, times.age_s))
    return EndedLease(task, (yield from dispatch(now, times)), is_awaited)


def _check_running(task: Lease, token: str | None) -> None:
    if task.state in ("queued", "waiting") and token is not None:
        raise _make_stale(task, "its lease has run out, and it is queued again")
    if task.state == "offered":
        if token is not None and token != task.token:
            raise _make_stale(task, "its lease has run out, and it is offered to another worker")
        raise InvalidRequest(
            f"The task `{task.id}` has not been acknowledged.",
            hint="`ack_task` first",
            bead_id=task.id,
            state=task.state,
        )
    if task.state != "running":
        raise InvalidRequest(
            f"No worker has the task `{task.id}`: it is {task.state}.", bead_id=task.id, state=task.state
        )
    _check_token(task, token)


def archive(task: Lease, state: State, now: float, times: Times, *, reason: str) -> Script[None]:
    """Put a task that nobody ended where tasks are kept that are over, and let its worker have another one."""
    yield Together((*_make_archive(task, state, now, times, reason=reason), free_worker(task, now)))


def _make_archive(
    task: Lease,
    state: State,
    now: float,
    times: Times,
    *,
    result: str | None = None,
    reason: str | None = None,
    ended_by: CallerId | None = None,
) -> tuple[Statement, ...]:
    """Write what became of a task, which this transaction keeps, and remove it from those that are to be done."""
    return (
        Statement(_ARCHIVE, (task.id, state, reason, result, now, ended_by)),
        Statement(_REMOVE, (task.id,)),
        note(task.id, now, state, worker=task.worker, attempt=task.attempt, detail=reason),
        *make_update(task.id, state, now, times, detail=result if state == "done" else reason),
    )


def retry(task_id: str, by: Caller, times: Times) -> Script[Submitted]:
    """Have a task done again: taken from whoever has it, or brought back after it was over.

    Its submitter may, the caller whose worker has it or ended it, and administrators.
    """
    ((now,),) = yield NOW
    task = yield from find_task(task_id)
    if task is None:
        over = yield from _require_ended(task_id)
        _check_may_retry(over, over.ended_by, by)
        task = yield from _revive(over, now, times)
    else:
        _check_may_retry(task, (yield from find_holder(task_id)), by)
        if task.state in ("offered", "running"):
            yield from requeue(task, now, "taken away")
    return (yield from resubmit(task, now, times))


def _check_may_retry(task: Task, holder: CallerId | None, by: Caller) -> None:
    if not by.is_admin and by.id not in (task.submitted_by, holder):
        raise Forbidden(
            f"The task `{task.id}` was submitted by another caller, and is not with a worker of yours.",
            hint="its submitter, the caller whose worker has it, or an administrator can retry it",
            bead_id=task.id,
            state=task.state,
        )


def cancel(task_id: str, times: Times, reason: str) -> Script[tuple[Task, list[Offer]]]:
    """Call a task off, whoever has it."""
    ((now,),) = yield NOW
    task = yield from find_task(task_id)
    if task is None:
        over = yield from _require_ended(task_id)
        if over.state != "cancelled":
            raise _make_over(over)
        return over, []
    yield from archive(task, "cancelled", now, times, reason=reason)
    return task, (yield from dispatch(now, times))


def reset(name: str, by: Caller, times: Times, *, leaves: bool = False) -> Script[tuple[TaskId | None, list[Offer]]]:
    """Make a worker of this caller idle, or any if they are an administrator; its task goes back to the queue, its poll ends.

    One that leaves is forgotten; but what it has begun may still be ended by whoever did it, until the lease runs out.
    """
    ((now,),) = yield NOW
    worker = yield from require_worker(name, by)
    held = yield from find_held(worker)
    if leaves and held is not None and held.state == "running":
        yield Statement("UPDATE bus_workers SET poll = NULL, poll_until = NULL WHERE name = ?1", (name,))
        return None, []
    if held is not None:
        yield from requeue(held, now, "reset")
    yield Statement(
        "UPDATE bus_workers SET task = NULL, poll = NULL, poll_until = NULL, idle_since = ?2, seen_at = 0,"
        " resets = resets + 1 WHERE name = ?1",
        (name, now),
    )
    if leaves:
        yield Statement("DELETE FROM bus_workers WHERE name = ?1", (name,))
    return (held.id if held is not None else None), (yield from dispatch(now, times))


def shorten_leases(times: Times) -> Script[None]:
    """Let no lease and no pause last longer than it could from now on.

    For a server that starts: if the clock was set back while none ran, nobody could tell that it was.
    """
    ((now,),) = yield NOW
    lease_end = now + max(times.offer_s, times.run_s, times.stuck_s)
    yield Statement(
        "UPDATE bus_tasks SET expires_at = ?1 WHERE worker IS NOT NULL AND expires_at > ?1",
        (lease_end,),
    )
    yield Statement(
        "UPDATE bus_tasks SET not_before = ?1 WHERE state = 'queued' AND not_before > ?1",
        (now + times.retry_limit_s,),
    )


def sweep(times: Times) -> Script[tuple[float | None, list[Offer], list[Task]]]:
    """Take back what was not acknowledged or not finished in time; when to look again, the offers that follow, what it was."""
    ((now,),) = yield NOW
    expired = parse_tasks(
        (
            yield Statement(
                f"SELECT {COLUMNS} FROM bus_tasks WHERE worker IS NOT NULL AND expires_at <= ?1"
                " ORDER BY expires_at LIMIT 100 /*skip locked*/",
                (now,),
            )
        )
    )
    for task in expired:
        yield from _expire(task, now, times)
    yield forget_workers(now, times)
    yield Statement("DELETE FROM bus_watches WHERE until < ?1", (now,))
    offered = yield from dispatch(now, times)
    rows = yield Statement(
        "SELECT min(due) FROM (SELECT min(expires_at) AS due FROM bus_tasks WHERE worker IS NOT NULL"
        " UNION ALL SELECT min(not_before) FROM bus_tasks WHERE state = 'queued' AND not_before > ?1) AS times",
        (now,),
    )
    due = rows[0][0]
    return (None if due is None else max(0.0, due - now)), offered, expired


def _expire(task: Task, now: float, times: Times) -> Script[None]:
    if task.state == "offered":
        # Whoever took it and did not say so is not there.
        yield Statement(
            "UPDATE bus_workers SET seen_at = 0, poll = NULL, poll_until = NULL WHERE name = ?1", (task.worker,)
        )
        yield from requeue(task, now, "not acknowledged")
    elif is_given_up(task, times):
        yield from archive(task, "dead", now, times, reason=f"its worker went silent {task.attempt} times")
    else:
        yield from requeue(task, now, "lease ran out", not_before=now + backoff_s(task.attempt, times))


def is_given_up(task: Task, times: Times) -> bool:
    """Whether a task whose lease has run out is not tried again."""
    return task.state != "offered" and task.attempt >= times.attempts


def backoff_s(attempt: int, times: Times) -> float:
    """Say how long a task waits after so many attempts."""
    usual = times.retry_s * 2.0 ** (attempt - 1)
    return min(times.retry_limit_s, usual * random.uniform(0.8, 1.2))  # noqa: S311


def _require_lease(task_id: str) -> Script[tuple[Lease, CallerId | None]]:
    found = yield from find_lease(task_id)
    if found is not None:
        return found
    raise _make_over((yield from _require_ended(task_id)))


def _require_ended(task_id: str) -> Script[EndedTask]:
    over = yield from find_archived(task_id)
    if over is None:
        raise NotFound(f"Unknown task `{task_id}`.", hint="`submit_task` first", bead_id=task_id)
    return over


def _check_repetition(
    over: EndedTask, state: State, token: str | None, by: Caller, *, result: str | None, reason: str | None
) -> None:
    """Refuse every word about a task that is over but the one that ended it."""
    if token is not None and token != over.token:
        raise _make_stale(over, f"it is over: {over.state}")
    if over.ended_by not in (by.id, None):
        raise _make_not_yours(over)
    if over.state != state:
        raise _make_over(over)
    # Who sends no result the second time says only that it is done.
    if (state == "done" and result is not None and not _is_same(result, over.result)) or reason != over.reason:
        what = "result" if state == "done" else "reason"
        raise InvalidRequest(
            f"The task `{over.id}` is over with another {what}, which is kept.",
            hint="`retry_task` runs it again",
            bead_id=over.id,
            state=over.state,
        )


def _is_same(text: str, other: str | None) -> bool:
    """Whether two texts are the same JSON, in whatever order its keys stand."""
    if other is None or text == other:
        return text == other
    first, second = (msgspec.json.encode(msgspec.json.decode(one), order="deterministic") for one in (text, other))
    return first == second


def _make_over(over: EndedTask) -> InvalidRequest:
    return InvalidRequest(f"The task `{over.id}` is over: {over.state}.", bead_id=over.id, state=over.state)


def _revive(over: EndedTask, now: float, times: Times) -> Script[Task]:
    rank = now + over.priority * times.age_s
    state = "waiting" if (yield from list_unmet_of(over.id)) else "queued"
    # Its dedupe key may be another task's by now.
    rows = yield Statement(_REVIVE, (over.id, rank, now, state))
    yield Statement("DELETE FROM bus_archive WHERE id = ?1", (over.id,))
    yield Together((note(over.id, now, "retried"), *make_update(over.id, "retried", now, times)))
    return parse_tasks(rows)[0]


def _check_token(task: Lease, token: str | None) -> None:
    if token is not None and token != task.token:
        raise _make_stale(task, "it was given out again meanwhile")


def _make_not_yours(task: Lease) -> Forbidden:
    return Forbidden(
        f"The task `{task.id}` was given to the worker `{task.worker}`, which another caller registered.",
        hint="only that caller can end it; `poll_task` gives you a task of your own",
        bead_id=task.id,
        state=task.state,
    )


def _make_stale(task: Lease, why: str) -> StaleLease:
    return StaleLease(
        f"The lease on the task `{task.id}` is no longer yours: {why}.",
        hint="stop working on it, and poll for another",
        bead_id=task.id,
        state=task.state,
    )


def _describe_holder(task: Lease) -> str:
    return "nobody" if task.worker is None else f"the worker `{WorkerName(task.worker)}`"
