"""Submission: a task is stored once, with its rank and the tasks that it depends on.

The rank is the time of submission plus `priority_s` for each step of priority, and the lowest comes first. A task of priority 2
comes before one of priority 1 that was submitted more than `priority_s` later, and none waits forever.
"""

from typing import Final

import msgspec

from toolpost import QueueOverloaded
from toolpost.contracts import GatewayError, InvalidRequest
from toolpost.fairness import Callers, over_limit
from toolpost.parts.bus.dispatch import Offer, dispatch
from toolpost.parts.bus.tasks import BusPolicy, BusTask, TaskId, WorkerName, find_archived, find_task, insert_event
from toolpost.store import NOW, Batch, Script, Statement, change, lock_name

POSITIONS: Final = 10_000
"""Positions in the queue are counted up to this one."""

_POSITION: Final = "SELECT 1 FROM bus_tasks WHERE state = 'queued' AND (rank, id) <= (?1, ?2) LIMIT ?3"
_QUEUED: Final = "(SELECT count(*) FROM (SELECT 1 FROM bus_tasks WHERE state = 'queued' LIMIT {limit}) AS queued)"
_WAITING: Final = "(SELECT count(*) FROM (SELECT 1 FROM bus_tasks WHERE state = 'waiting' LIMIT {limit}) AS waiting)"
# In one read: whether the task has ended, how many are queued and waiting (up to a limit), how many come after it (mostly
# none, which is why these are counted and not those before it), and whether a worker is free.
_QUEUE_STATE: Final = (
    f"SELECT EXISTS (SELECT 1 FROM bus_archive WHERE id = ?2), {_QUEUED.format(limit='?3')}, {_WAITING.format(limit='?3')},"
    " (SELECT count(*) FROM bus_tasks WHERE state = 'queued' AND (rank, id) > (?1, ?2)),"
    " EXISTS (SELECT 1 FROM bus_workers WHERE task IS NULL)"
)
_INSERT: Final = (
    "INSERT INTO bus_tasks (id, state, priority, payload, dedupe_key, submitted_by, submitted_at, rank, not_before,"
    " attempt, leases, is_fetched, changed_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, 0, 0, 0, ?7) ON CONFLICT DO NOTHING"
)

_INSERT_NEED: Final = "INSERT INTO bus_needs (task, needs) VALUES (?1, ?2) ON CONFLICT DO NOTHING"
_CYCLE: Final = """
WITH RECURSIVE needed (id) AS (
    SELECT needs FROM bus_needs WHERE task = ?1 UNION SELECT n.needs FROM bus_needs n JOIN needed d ON n.task = d.id
) SELECT 1 FROM needed WHERE id = ?2 LIMIT 1
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


class SubmitResult(msgspec.Struct, frozen=True, kw_only=True):
    """Where a submitted task is."""

    task: TaskId
    worker: WorkerName | None = None
    """The worker that has it; None while it is queued."""
    position: int | None = None
    """Its position in the queue, from 1; None while it waits for other tasks."""
    waits_for: tuple[TaskId, ...] = ()
    is_duplicate: bool = False
    offered: tuple[Offer, ...] = ()
    """All offers of the transaction: their polls have to be woken."""


def submit(new: Submission, policy: BusPolicy, capacity: int, callers: Callers) -> Script[SubmitResult]:
    """Store a task; one that is queued, waiting or offered already is returned as it is.

    Raises `InvalidRequest` for one that runs or has ended, and for a cycle; `QueueOverloaded` over the capacity or the caller's
    share of it.
    """
    ((now,),) = yield NOW
    if new.needs:
        existing = yield from _find_existing(new)
        if existing is not None:
            return existing
        # Two servers that each add one half of a cycle at the same moment would not see each other's half.
        yield lock_name("bus needs")
        yield from _refuse_cycles(new)
    waits_for = yield from filter_not_done(new.needs)
    rank = now + new.priority * policy.priority_s
    state = "waiting" if waits_for else "queued"
    values = (new.task, state, new.priority, new.payload, new.dedupe_key, new.by, now, rank)
    # Before anything is counted: on PostgreSQL a statement sees what is committed when it starts. If another process has ended
    # this task in between, the insert succeeds, and only a read after it sees the archive. What raises below takes it back.
    if not (yield change(_INSERT, values)):
        existing = yield from _find_existing(new)
        if existing is None:
            raise GatewayError("the task was submitted and ended by another process at the same time")
        return existing
    ((has_ended, queued, waiting, after, has_free_worker),) = yield Statement(
        _QUEUE_STATE, (rank, new.task, capacity + 1)
    )
    if has_ended:
        yield from _refuse_ended(new.task)
    yield from _refuse_over_capacity(new, queued + waiting, capacity, callers)
    submitted = insert_event(new.task, now, "submitted", detail=new.by)
    if new.needs:
        needs = (Statement(_INSERT_NEED, (new.task, needed)) for needed in dict.fromkeys(new.needs))
        yield Batch((submitted, *needs))
    if waits_for:
        return SubmitResult(task=new.task, waits_for=waits_for)
    if not has_free_worker and not new.needs:
        yield submitted
        return _make_result(new.task, queued - after, [])
    offered = yield from dispatch(now, policy, *(() if new.needs else (submitted,)), at_most=1)
    return _make_result(new.task, queued - after, offered)


def _make_result(task: TaskId, position: int, offered: list[Offer]) -> SubmitResult:
    """Make the result from the position before the offers, which have removed tasks from the front of the queue."""
    for one, _ in offered:
        if one.id == task:
            return SubmitResult(task=task, worker=one.worker, offered=tuple(offered))
    return SubmitResult(task=task, position=max(1, position - len(offered)), offered=tuple(offered))


def dispatch_requeued(task: BusTask, now: float, policy: BusPolicy) -> Script[SubmitResult]:
    """Offer tasks after one was queued again, and return where that one is."""
    waits_for = yield from list_unmet_needs(task.id)
    if waits_for:
        return SubmitResult(task=task.id, waits_for=waits_for)
    offered = yield from dispatch(now, policy)
    return _make_result(task.id, (yield from count_position(task.id, task.rank)) + len(offered), offered)


def _find_existing(new: Submission) -> Script[SubmitResult | None]:
    """Find the task with this id or dedupe key; raises `InvalidRequest` if the task of this id runs or has ended."""
    task = yield from find_task(new.task)
    is_duplicate = False
    if task is None and new.dedupe_key is not None:
        rows = yield Statement("SELECT id FROM bus_tasks WHERE dedupe_key = ?1", (new.dedupe_key,))
        task = (yield from find_task(rows[0][0])) if rows else None
        is_duplicate = task is not None
    if task is None:
        yield from _refuse_ended(new.task)
        return None
    if task.state == "running" and not is_duplicate:
        raise InvalidRequest(
            f"The task `{task.id}` is with the worker `{task.worker}` already.",
            hint="wait for it with `wait_tasks`, or take it from the worker with `retry_task`",
            bead_id=task.id,
            state=task.state,
            worker=task.worker,
        )
    waits_for = yield from list_unmet_needs(task.id)
    position = (yield from count_position(task.id, task.rank)) if task.state == "queued" else None
    return SubmitResult(
        task=task.id, worker=task.worker, position=position, waits_for=waits_for, is_duplicate=is_duplicate
    )


def _refuse_ended(task: TaskId) -> Script[None]:
    ended = yield from find_archived(task)
    if ended is not None:
        raise InvalidRequest(
            f"The task `{task}` is over: {ended.state}.",
            hint="`retry_task` runs it again",
            bead_id=task,
            state=ended.state,
        )


def _refuse_cycles(new: Submission) -> Script[None]:
    for needed in new.needs:
        if needed == new.task or (yield Statement(_CYCLE, (needed, new.task))):
            raise InvalidRequest(
                f"`{new.task}` would wait for itself, through `{needed}`.",
                hint="leave one of the two dependencies out",
                bead_id=new.task,
                depends_on=needed,
            )


def _refuse_over_capacity(new: Submission, count: int, capacity: int, callers: Callers) -> Script[None]:
    """Refuse a task that makes `count` tasks wait, if these are too many for all callers or for its own."""
    if count > capacity:
        raise QueueOverloaded(
            f"{capacity} tasks are waiting already.",
            retry_s=5,
            hint="submit again when some are done",
            capacity=capacity,
        )
    if not callers.are_several or count <= callers.share_of(capacity):
        return  # while all together have one share at most, no caller can be over it
    ((own,),) = yield Statement(
        "SELECT count(*) FROM bus_tasks WHERE state IN ('queued', 'waiting') AND submitted_by = ?1", (new.by,)
    )
    if own > callers.share_of(capacity):
        raise over_limit("bus tasks waiting", own - 1, capacity, callers, retry_s=5, hint="wait until some are done")


def filter_not_done(tasks: tuple[TaskId, ...]) -> Script[tuple[TaskId, ...]]:
    """Return those of these tasks that are not done, unknown ones included: they may be submitted later."""
    not_done = []
    for task in tasks:
        rows = yield Statement("SELECT 1 FROM bus_archive WHERE id = ?1 AND state = 'done'", (task,))
        if not rows:
            not_done.append(task)
    return tuple(not_done)


def list_unmet_needs(task: TaskId) -> Script[tuple[TaskId, ...]]:
    """Return the tasks that a task still waits for."""
    rows = yield Statement("SELECT needs FROM bus_needs WHERE task = ?1 ORDER BY needs", (task,))
    return (yield from filter_not_done(tuple(TaskId(row[0]) for row in rows)))


def count_position(task: TaskId, rank: float) -> Script[int]:
    """Return the position of a task in the queue, from 1."""
    rows = yield Statement(f"SELECT count(*) FROM ({_POSITION}) AS before", (rank, task, POSITIONS))
    return int(rows[0][0])
