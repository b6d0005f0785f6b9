"""Submission of tasks: each is stored once, ranked by priority and age, and never waits for itself."""

from typing import Final

import msgspec

from toolpost.contracts.errors import GatewayError, InvalidRequest, QueueOverloaded
from toolpost.parts.bus.dispatch import Offer, dispatch
from toolpost.parts.bus.tasks import Task, TaskId, Times, WorkerName, find_archived, find_task, note
from toolpost.shares import Callers, over_limit
from toolpost.store.scripts import NOW, Script, Statement, Together, alone, change

POSITIONS: Final = 10_000
"""How far a position in the queue is counted."""

_PLACE: Final = "SELECT 1 FROM bus_tasks WHERE state = 'queued' AND (rank, id) <= (?1, ?2) LIMIT ?3"
_QUEUED: Final = "(SELECT count(*) FROM (SELECT 1 FROM bus_tasks WHERE state = 'queued' LIMIT {limit}) AS queued)"
_WAITING: Final = "(SELECT count(*) FROM (SELECT 1 FROM bus_tasks WHERE state = 'waiting' LIMIT {limit}) AS waiting)"
# Whether it is over, how many are queued or wait, how many of them will come after it, mostly none, and whether somebody is free.
_OUTLOOK: Final = (
    f"SELECT EXISTS (SELECT 1 FROM bus_archive WHERE id = ?2), {_QUEUED.format(limit='?3')}, {_WAITING.format(limit='?3')},"
    " (SELECT count(*) FROM bus_tasks WHERE state = 'queued' AND (rank, id) > (?1, ?2)),"
    " EXISTS (SELECT 1 FROM bus_workers WHERE task IS NULL)"
)
_TAKE_IN: Final = (
    "INSERT INTO bus_tasks (id, state, priority, payload, dedupe_key, submitted_by, submitted_at, rank, not_before,"
    " attempt, leases, is_fetched, changed_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, 0, 0, 0, ?7) ON CONFLICT DO NOTHING"
)

_CYCLE: Final = """
WITH RECURSIVE upwards (id) AS (
    SELECT needs FROM bus_needs WHERE task = ?1 UNION SELECT n.needs FROM bus_needs n JOIN upwards u ON n.task = u.id
) SELECT 1 FROM upwards WHERE id = ?2 LIMIT 1
"""


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A task as a planner submits it."""

    task: TaskId
    priority: int
    payload: str | None = None
    """JSON."""
    needs: tuple[TaskId, ...] = ()
    dedupe_key: str | None = None
    by: str = ""


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """Where a submitted task is."""

    task: TaskId
    worker: WorkerName | None = None
    """The worker that has it; None while it is queued."""
    position: int | None = None
    """Its position in the queue, from 1; None while it waits for other tasks."""
    waits_for: tuple[TaskId, ...] = ()
    is_duplicate: bool = False
    offered: tuple[Offer, ...] = ()
    """All offers that the transaction made: their workers have to be woken."""


def submit(new: Submission, times: Times, capacity: int, callers: Callers) -> Script[Submitted]:
    """Store a task; one that is stored already is returned as it is. Raises `QueueOverloaded` over a limit."""
    ((now,),) = yield NOW
    if new.needs:
        known = yield from _find_known(new)
        if known is not None:
            return known
        # Two servers that each add one half of a cycle at the same moment would not see each other's half.
        yield alone("bus needs")
        yield from _refuse_circles(new)
    waits_for = yield from list_unmet(new.needs)
    rank = now + new.priority * times.age_s
    ((is_over, queued, waiting, after, is_anybody_free),) = yield Statement(_OUTLOOK, (rank, new.task, capacity))
    if callers.are_several and queued + waiting >= callers.share_of(capacity):
        # Only now can one caller have more than their share: below that, tasks are not counted by caller.
        known = yield from _find_known(new)
        if known is not None:
            return known
        yield from _refuse_over_share(new, capacity, callers)
    state = "waiting" if waits_for else "queued"
    values = (new.task, state, new.priority, new.payload, new.dedupe_key, new.by, now, rank)
    if is_over or queued + waiting >= capacity or not (yield change(_TAKE_IN, values)):
        return (yield from _explain_refusal(new, capacity))
    submitted = note(new.task, now, "submitted", detail=new.by)
    if new.needs:
        yield Together((submitted, *(_insert_need(new.task, needed) for needed in dict.fromkeys(new.needs))))
    if waits_for:
        return Submitted(task=new.task, waits_for=waits_for)
    if not is_anybody_free and not new.needs:
        yield submitted
        return _make_submitted(new.task, queued - after + 1, [])
    offered = yield from dispatch(now, times, *(() if new.needs else (submitted,)), at_most=1)
    return _make_submitted(new.task, queued - after + 1, offered)


def _explain_refusal(new: Submission, capacity: int) -> Script[Submitted]:
    known = yield from _find_known(new)
    if known is not None:
        return known
    yield from refuse_if_full(capacity)
    raise GatewayError("a task was taken in and ended meanwhile")


def _insert_need(task: TaskId, needs: TaskId) -> Statement:
    return Statement("INSERT INTO bus_needs (task, needs) VALUES (?1, ?2) ON CONFLICT DO NOTHING", (task, needs))


def _make_submitted(task: TaskId, position: int, offered: list[Offer]) -> Submitted:
    """Return where a task is; tasks that were offered just now are no longer before it."""
    for one, _ in offered:
        if one.id == task:
            return Submitted(task=task, worker=one.worker, offered=tuple(offered))
    return Submitted(task=task, position=max(1, position - len(offered)), offered=tuple(offered))


def resubmit(task: Task, now: float, times: Times) -> Script[Submitted]:
    """Offer tasks after one was put back, and return where that one is."""
    waits_for = yield from list_unmet_of(task.id)
    if waits_for:
        return Submitted(task=task.id, waits_for=waits_for)
    offered = yield from dispatch(now, times)
    return _make_submitted(task.id, (yield from count_position(task.id, task.rank)) + len(offered), offered)


def _find_known(new: Submission) -> Script[Submitted | None]:
    there = yield from find_task(new.task)
    is_duplicate = False
    if there is None and new.dedupe_key is not None:
        rows = yield Statement("SELECT id FROM bus_tasks WHERE dedupe_key = ?1", (new.dedupe_key,))
        there = (yield from find_task(rows[0][0])) if rows else None
        is_duplicate = there is not None
    if there is None:
        over = yield from find_archived(new.task)
        if over is None:
            return None
        raise InvalidRequest(
            f"The task `{new.task}` is over: {over.state}.",
            hint="`retry_task` runs it again",
            bead_id=new.task,
            state=over.state,
        )
    if there.state == "running" and not is_duplicate:
        raise InvalidRequest(
            f"The task `{there.id}` is with the worker `{there.worker}` already.",
            hint="wait for it, or take it away: `retry_task`",
            bead_id=there.id,
            state=there.state,
            worker=there.worker,
        )
    waits_for = yield from list_unmet_of(there.id)
    position = (yield from count_position(there.id, there.rank)) if there.state == "queued" else None
    return Submitted(
        task=there.id, worker=there.worker, position=position, waits_for=waits_for, is_duplicate=is_duplicate
    )


def _refuse_circles(new: Submission) -> Script[None]:
    for needed in new.needs:
        if needed == new.task or (yield Statement(_CYCLE, (needed, new.task))):
            raise InvalidRequest(
                f"`{new.task}` would wait for itself, through `{needed}`.",
                hint="leave one of the two dependencies out",
                bead_id=new.task,
                depends_on=needed,
            )


def _refuse_over_share(new: Submission, capacity: int, callers: Callers) -> Script[None]:
    ((own,),) = yield Statement(
        "SELECT count(*) FROM bus_tasks WHERE state IN ('queued', 'waiting') AND submitted_by = ?1", (new.by,)
    )
    if own >= callers.share_of(capacity):
        raise over_limit("bus tasks waiting", own, capacity, callers, retry_s=5, hint="wait until some are done")


def refuse_if_full(capacity: int) -> Script[None]:
    """Raise `QueueOverloaded` if the queue is at its capacity."""
    ((queued, waiting),) = yield Statement(
        f"SELECT {_QUEUED.format(limit='?1')}, {_WAITING.format(limit='?1')}", (capacity,)
    )
    if queued + waiting >= capacity:
        raise QueueOverloaded(
            f"{capacity} tasks are waiting already.",
            retry_s=5,
            hint="submit again when some are done",
            capacity=capacity,
        )


def list_unmet(needs: tuple[TaskId, ...]) -> Script[tuple[TaskId, ...]]:
    """Return those of these tasks that are not done."""
    missing = []
    for needed in needs:
        rows = yield Statement("SELECT 1 FROM bus_archive WHERE id = ?1 AND state = 'done'", (needed,))
        if not rows:
            missing.append(needed)
    return tuple(missing)


def list_unmet_of(task: TaskId) -> Script[tuple[TaskId, ...]]:
    """Return the tasks that a task still waits for."""
    rows = yield Statement("SELECT needs FROM bus_needs WHERE task = ?1 ORDER BY needs", (task,))
    return (yield from list_unmet(tuple(TaskId(row[0]) for row in rows)))


def count_position(task: TaskId, rank: float) -> Script[int]:
    """Return the position of a task in the queue, from 1."""
    rows = yield Statement(f"SELECT count(*) FROM ({_PLACE}) AS before", (rank, task, POSITIONS))
    return int(rows[0][0])
