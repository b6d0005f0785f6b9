"""What waits meets who waits: queued tasks offered to workers, and taken from them again."""

import secrets
from typing import Final

from toolpost.bus.tasks import (
    COLUMNS,
    WORKER_COLUMNS,
    LeaseToken,
    Task,
    Times,
    Worker,
    WorkerName,
    find_task,
    note,
    tasks_of,
    workers_of,
)
from toolpost.store.scripts import Script, Statement

AT_ONCE: Final = 32
"""How many offers one transaction makes at most."""

_FREE_WORKER: Final = (
    f"SELECT {WORKER_COLUMNS} FROM bus_workers"
    " WHERE task IS NULL AND ((poll IS NOT NULL AND poll_until > ?1) OR seen_at > ?2)"
    " ORDER BY CASE WHEN poll IS NOT NULL AND poll_until > ?1 THEN 0 ELSE 1 END, idle_since, name"
    " LIMIT 1 /*skip locked*/"
)
_NEXT_TASK: Final = (
    f"SELECT {COLUMNS} FROM bus_tasks WHERE state = 'queued' AND not_before <= ?1"
    " ORDER BY rank, id LIMIT 1 /*skip locked*/"
)
_OFFER: Final = (
    "UPDATE bus_tasks SET state = 'offered', worker = ?2, token = ?3, expires_at = ?4, is_fetched = ?5, leases = leases + 1,"
    f" changed_at = ?6 WHERE id = ?1 RETURNING {COLUMNS}"
)


def dispatch(now: float, times: Times) -> Script[list[Task]]:
    """Offer what is queued to whoever is free, polling workers first, then the one idle longest."""
    offered: list[Task] = []
    while len(offered) < AT_ONCE:
        task = yield from next_task(now)
        if task is None:
            break
        workers = workers_of((yield Statement(_FREE_WORKER, (now, now - times.present_s))))
        if not workers:
            break
        offered.append((yield from offer(task, workers[0].name, now, times)))
    return offered


def next_task(now: float) -> Script[Task | None]:
    """Find the task whose turn it is, and keep it for this transaction."""
    rows = yield Statement(_NEXT_TASK, (now,))
    return tasks_of(rows)[0] if rows else None


def offer(task: Task, worker: WorkerName, now: float, times: Times, *, is_fetched: bool = False) -> Script[Task]:
    """Give a task to a worker for a moment, under a new token."""
    token = LeaseToken(secrets.token_hex(8))
    rows = yield Statement(_OFFER, (task.id, worker, token, now + times.offer_s, int(is_fetched), now))
    yield Statement("UPDATE bus_workers SET task = ?2 WHERE name = ?1", (worker, task.id))
    yield note(task.id, now, "offered", worker=worker, attempt=task.attempt)
    return tasks_of(rows)[0]


def requeue(task: Task, now: float, kind: str, *, not_before: float = 0.0, detail: str | None = None) -> Script[None]:
    """Take a task from its worker and put it back where it was in the queue."""
    yield Statement(
        "UPDATE bus_tasks SET state = 'queued', worker = NULL, token = NULL, expires_at = NULL, is_fetched = 0,"
        " not_before = ?2, changed_at = ?3 WHERE id = ?1",
        (task.id, not_before, now),
    )
    yield from free_worker(task, now)
    yield note(task.id, now, kind, worker=task.worker, attempt=task.attempt, detail=detail)


def free_worker(task: Task, now: float) -> Script[None]:
    """Let the worker of a task have another one."""
    if task.worker is not None:
        yield Statement(
            "UPDATE bus_workers SET task = NULL, idle_since = ?3 WHERE name = ?1 AND task = ?2",
            (task.worker, task.id, now),
        )


def held_by(worker: Worker) -> Script[Task | None]:
    """Find the task that a worker has; None if it has none, or no longer."""
    if worker.task is None:
        return None
    task = yield from find_task(worker.task)
    return task if task is not None and task.worker == worker.name else None
