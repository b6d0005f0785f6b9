"""The state of the bus at one moment: workers, queue, tasks that need a person, counts; and the history of one task."""

from dataclasses import dataclass
from typing import Final

from toolpost.parts.bus.errors import unknown_task
from toolpost.parts.bus.tasks import (
    TASK_COLUMNS,
    WORKER_COLUMNS,
    BusTask,
    TaskId,
    Worker,
    find_archived,
    find_task,
    parse_tasks,
    parse_workers,
)
from toolpost.store import NOW, Script, Statement

SHOWN: Final = 100
"""How many tasks of a kind are listed; all are counted."""


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The bus at one moment."""

    now: float
    workers: list[Worker]
    held: dict[str, BusTask]
    """Tasks that workers have, by id."""
    queue: list[BusTask]
    counts: dict[str, int]
    troubled: list[BusTask]
    """Dead and blocked tasks, the latest first."""

    def find_held(self, worker: Worker) -> BusTask | None:
        """Return the task that a worker has; None if it has none."""
        return self.held.get(worker.task) if worker.task is not None else None

    def status_of(self, worker: Worker) -> str:
        """Return `executing`, `pending` (its task is not acknowledged), `polling` or `idle`."""
        if (held := self.find_held(worker)) is not None:
            return "executing" if held.state == "running" else "pending"
        return "polling" if worker.is_polling(self.now) else "idle"


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event in the history of a task."""

    at: float
    kind: str
    worker: str | None
    attempt: int
    detail: str | None


def overview() -> Script[Overview]:
    ((now,),) = yield NOW
    workers = parse_workers((yield Statement(f"SELECT {WORKER_COLUMNS} FROM bus_workers ORDER BY name")))
    held = parse_tasks((yield _tasks("worker IS NOT NULL", "rank, id", 10_000)))
    queue = parse_tasks((yield _tasks("state = 'queued'", "rank, id", SHOWN)))
    active = yield Statement("SELECT state, count(*) FROM bus_tasks GROUP BY state")
    ended = yield Statement("SELECT state, count(*) FROM bus_archive WHERE state <> 'done' GROUP BY state")
    troubled = parse_tasks(
        (
            yield Statement(
                f"SELECT {TASK_COLUMNS} FROM bus_archive WHERE state IN ('dead', 'blocked') AND state <> 'done'"
                f" ORDER BY changed_at DESC LIMIT {SHOWN}"
            )
        )
    )
    return Overview(
        now=now,
        workers=workers,
        held={task.id: task for task in held},
        queue=queue,
        counts={str(state): int(number) for state, number in (*active, *ended)},
        troubled=troubled,
    )


@dataclass(frozen=True, kw_only=True)
class Depth:
    """How many tasks there are in each state, for metrics."""

    queued: int = 0
    waiting: int = 0
    held: int = 0
    dead: int = 0
    dead_since: float | None = None
    """When the first of those that are dead became so, on the clock of the store."""
    oldest_s: float = 0.0
    """Age of the oldest task that is queued or waiting."""


def depth() -> Script[Depth]:
    ((now,),) = yield NOW
    rows = yield Statement("SELECT state, count(*), min(submitted_at) FROM bus_tasks GROUP BY state")
    counts = {state: int(number) for state, number, _ in rows}
    since = [at for state, _, at in rows if state in ("queued", "waiting")]
    dead = yield Statement("SELECT count(*), min(changed_at) FROM bus_archive WHERE state = 'dead' AND state <> 'done'")
    return Depth(
        queued=counts.get("queued", 0),
        waiting=counts.get("waiting", 0),
        held=counts.get("offered", 0) + counts.get("running", 0),
        dead=int(dead[0][0]),
        dead_since=dead[0][1],
        oldest_s=max(0.0, now - min(since)) if since else 0.0,
    )


def list_polling_workers() -> Script[list[Worker]]:
    """List the workers with a poll, including those whose poll timed out."""
    return parse_workers((yield Statement(f"SELECT {WORKER_COLUMNS} FROM bus_workers WHERE poll IS NOT NULL")))


def history(task_id: TaskId) -> Script[tuple[BusTask, list[Event]]]:
    """Return a task and its events in order; raises `NotFound`."""
    task = yield from find_task(task_id, lock=False)
    if task is None:
        task = yield from find_archived(task_id)
    if task is None:
        raise unknown_task(task_id, hint="`toolpost bus tasks` lists the tasks")
    rows = yield Statement(
        "SELECT at, kind, worker, attempt, detail FROM bus_events WHERE task = ?1 ORDER BY seq", (task_id,)
    )
    return task, [Event(at=at, kind=kind, worker=w, attempt=attempt, detail=d) for at, kind, w, attempt, d in rows]


def _tasks(where: str, order: str, limit: int) -> Statement:
    return Statement(f"SELECT {TASK_COLUMNS} FROM bus_tasks WHERE {where} ORDER BY {order} LIMIT {limit}")
