"""Tasks and their results, as callers may read them: one task, a list, and whether several have ended.

A caller may read the tasks that it submitted, and those that one of its workers has or ended; an administrator may read all.
Of other tasks it may read what `get_status` shows to every caller, and nothing of those that `get_status` does not show. Lease
tokens are never returned.
"""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from toolpost import Caller, CallerId, Forbidden
from toolpost.parts.bus.errors import unknown_task
from toolpost.parts.bus.submission import list_unmet_needs
from toolpost.parts.bus.tasks import HOLDER, TASK_COLUMNS, BusTask, PollId, State, TaskId, WorkerName
from toolpost.store import NOW, Batch, Row, Script, Statement

ACTIVE: Final[tuple[State, ...]] = ("waiting", "queued", "offered", "running")
FINISHED: Final[tuple[State, ...]] = ("done", "blocked", "dead", "cancelled")
ATTEMPTS_SHOWN: Final = 50
RESULTS_CHARS: Final = 256 * 1024
"""The most characters of results in one answer about several tasks; a single result always fits."""

_PUBLIC_STATES: Final = frozenset({"queued", "offered", "running", "blocked", "dead"})
_STARTED: Final = "acknowledged"
_ENDINGS: Final = {
    "done": ("done", None),
    "blocked": ("failed", "its worker reported a failure"),
    "lease ran out": ("lease_expired", "its worker went silent"),
    "dead": ("lease_expired", "its worker went silent"),
    "taken away": ("taken_away", "it was retried while it ran"),
    "reset": ("reset", "its worker was reset"),
    "cancelled": ("cancelled", "it was cancelled"),
}
"""Events that end an attempt: its outcome, and the error if the event has no detail."""

_ATTEMPTS: Final = (
    "SELECT at, kind, worker, attempt, detail FROM bus_events WHERE task = ?1"
    f" AND kind IN ({', '.join(repr(kind) for kind in (_STARTED, *_ENDINGS))}) ORDER BY seq DESC LIMIT {2 * ATTEMPTS_SHOWN}"
)
# Both tables in one statement: on PostgreSQL a task that is moved between two statements would be found in neither.
_WHOLE: Final = (
    f"SELECT {TASK_COLUMNS}, {HOLDER} FROM bus_tasks WHERE id = ?1"
    f" UNION ALL SELECT {TASK_COLUMNS}, ended_by FROM bus_archive WHERE id = ?1"
)
_SUMMARY: Final = "id, state, priority, attempt, worker, expires_at, reason, submitted_by, submitted_at, changed_at"
_ACTIVE_SUMMARY: Final = f"SELECT {_SUMMARY}, {HOLDER} AS caller, 0 AS result_chars FROM bus_tasks"
_FINISHED_SUMMARY: Final = (
    f"SELECT {_SUMMARY}, ended_by AS caller, coalesce(length(result), 0) AS result_chars FROM bus_archive"
)
_WATCH: Final = "INSERT INTO bus_watches (task, waiter, until) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING"


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a task by a worker, from its acknowledgement on."""

    number: int
    worker: WorkerName | None
    started_at: float
    ended_at: float | None = None
    outcome: str | None = None
    error: str | None = None


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """A task, as a caller may read it."""

    task: BusTask
    is_whole: bool
    """Whether this caller may read all of it; if not, only what `get_status` shows may be returned."""
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    waits_for: tuple[TaskId, ...] = ()


class Summary(msgspec.Struct, frozen=True):
    """A task in a list. The fields are the columns of `_SUMMARY` in their order, and two more."""

    id: TaskId
    state: State
    priority: int
    attempt: int
    worker: WorkerName | None
    expires_at: float | None
    reason: str | None
    submitted_by: str
    submitted_at: float
    changed_at: float
    caller: CallerId | None
    """The caller whose worker has it, or ended it."""
    result_chars: int

    @property
    def has_ended(self) -> bool:
        return self.state in FINISHED


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The last task of a page, after which the next one starts."""

    changed_at: float
    task: str


class TaskPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list of tasks, the latest change first."""

    tasks: list[Summary]
    next: Position | None
    """None if this is the last page."""


def read_task(task_id: TaskId, by: Caller) -> Script[TaskReport]:
    """Read one task; raises `NotFound`, and `Forbidden` for a task of another caller that `get_status` does not show."""
    rows = yield Statement(_WHOLE, (task_id,))
    if not rows:
        raise unknown_task(task_id)
    *columns, caller = rows[0]
    task = BusTask(*columns)
    if not _may_read(by, task.submitted_by, caller):
        if task.state not in _PUBLIC_STATES:
            raise _make_foreign_task(task_id)
        return TaskReport(task=task, is_whole=False)
    attempts = _parse_attempts((yield Statement(_ATTEMPTS, (task_id,))))
    waits_for = (yield from list_unmet_needs(task_id)) if task.state == "waiting" else ()
    return TaskReport(task=task, is_whole=True, attempts=attempts, waits_for=waits_for)


def list_tasks(states: Collection[State], by: Caller, limit: int, after: Position | None) -> Script[TaskPage]:
    """List the tasks that a caller may read, the latest change of state first."""
    where, values = ["1 = 1"], list[object]()
    if after is not None:
        where.append("(changed_at, id) < (?1, ?2)")
        values += (after.changed_at, after.task)
    parts = []
    number = len(values) + 1
    active, finished = (", ".join(repr(one) for one in kind if one in states) for kind in (ACTIVE, FINISHED))
    order = f"ORDER BY changed_at DESC, id DESC LIMIT {limit + 1}"
    if active:
        own = f"submitted_by = ?{number} OR worker IN (SELECT name FROM bus_workers WHERE caller = ?{number})"
        conditions = [*where, f"state IN ({active})", *([] if by.is_admin else [f"({own})"])]
        parts.append(f"SELECT * FROM ({_ACTIVE_SUMMARY} WHERE {' AND '.join(conditions)} {order}) AS active")
    if finished:
        own = f"submitted_by = ?{number} OR ended_by = ?{number}"
        conditions = [*where, f"state IN ({finished})", *([] if by.is_admin else [f"({own})"])]
        # The inner SELECT is answered by the index alone, so that payloads and results of other rows are not read.
        found = f"SELECT id FROM bus_archive WHERE {' AND '.join(conditions)} {order}"
        parts.append(f"SELECT * FROM ({_FINISHED_SUMMARY} WHERE id IN ({found})) AS finished")
    if not by.is_admin:
        values.append(by.id)
    rows = yield Statement(f"{' UNION ALL '.join(parts)} {order}", tuple(values))
    tasks = [Summary(*row) for row in rows[:limit]]
    has_more = len(rows) > limit
    return TaskPage(tasks=tasks, next=Position(tasks[-1].changed_at, tasks[-1].id) if has_more else None)


def summarize(tasks: Sequence[TaskId], by: Caller) -> Script[list[Summary]]:
    """Return summaries in the order of `tasks`; raises `NotFound` or `Forbidden` for the first that cannot be read."""
    names = ", ".join(f"?{number}" for number in range(1, len(tasks) + 1))
    sql = f"{_ACTIVE_SUMMARY} WHERE id IN ({names}) UNION ALL {_FINISHED_SUMMARY} WHERE id IN ({names})"
    found = {row[0]: Summary(*row) for row in (yield Statement(sql, tuple(tasks)))}
    for task in tasks:
        if task not in found:
            raise unknown_task(task)
        if not _may_read(by, found[task].submitted_by, found[task].caller):
            raise _make_foreign_task(task)
    return [found[task] for task in tasks]


def read_results(tasks: Sequence[TaskId], by: Caller) -> Script[tuple[list[Summary], dict[TaskId, str]]]:
    """Return summaries, and as JSON the results of done tasks that fit into one answer."""
    summaries = yield from summarize(tasks, by)
    left = RESULTS_CHARS
    fitting = []
    for one in summaries:
        if 0 < one.result_chars <= left:
            left -= one.result_chars
            fitting.append(one.id)
    if not fitting:
        return summaries, {}
    names = ", ".join(f"?{number}" for number in range(1, len(fitting) + 1))
    rows = yield Statement(
        f"SELECT id, result FROM bus_archive WHERE id IN ({names}) AND result IS NOT NULL", tuple(fitting)
    )
    return summaries, {TaskId(task): result for task, result in rows}


def watch(tasks: Sequence[TaskId], waiter: PollId, wait_s: float) -> Script[None]:
    """Store that a waiter waits for these tasks, at most `wait_s`: who ends one of them then rings."""
    ((now,),) = yield NOW
    yield Batch(tuple(Statement(_WATCH, (task, waiter, now + wait_s)) for task in tasks))


def unwatch(tasks: Sequence[TaskId], waiter: PollId) -> Script[None]:
    """Delete what `watch` stored."""
    delete = "DELETE FROM bus_watches WHERE task = ?1 AND waiter = ?2"
    yield Batch(tuple(Statement(delete, (task, waiter)) for task in tasks))


def _parse_attempts(latest_first: list[Row]) -> list[Attempt]:
    """Combine events to attempts, the oldest first."""
    attempts: list[Attempt] = []
    for at, kind, worker, number, detail in reversed(latest_first):
        if kind == _STARTED:
            attempts.append(Attempt(number=number, worker=worker, started_at=at))
        elif attempts and attempts[-1].ended_at is None:
            # An event without a started attempt, such as the reset of an offer, is left out.
            outcome, error = _ENDINGS[kind]
            if kind not in ("done", "dead"):
                error = detail or error
            attempts[-1] = msgspec.structs.replace(attempts[-1], ended_at=at, outcome=outcome, error=error)
    return attempts[-ATTEMPTS_SHOWN:]


def _may_read(by: Caller, submitted_by: str, caller: CallerId | None) -> bool:
    return by.is_admin or by.id in (submitted_by, caller)


def _make_foreign_task(task: TaskId) -> Forbidden:
    return Forbidden(
        f"The task `{task}` was submitted by another caller, and no worker of yours has it or ended it.",
        hint="its submitter, the caller whose worker has it or ended it, or an administrator can read it",
        bead_id=task,
    )
