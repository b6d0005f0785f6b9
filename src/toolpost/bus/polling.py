"""A worker comes for a task: registered under a name of its own, given what is its turn, or told that there is nothing."""

from dataclasses import dataclass
from typing import Final

from toolpost.bus.dispatching import dispatch, held_by, next_task, offer, requeue
from toolpost.bus.tasks import COLUMNS, PollId, Task, Times, Worker, WorkerName, find_worker, note, tasks_of
from toolpost.contracts.errors import InvalidRequest, NotFound, QueueOverloaded
from toolpost.store.scripts import NOW, Script, Statement

NAMES_TRIED: Final = 1_000

_FETCH: Final = (
    f"UPDATE bus_tasks SET is_fetched = 1, expires_at = ?2 WHERE id = ?1 AND state = 'offered' RETURNING {COLUMNS}"
)
_RESERVED: Final = (
    f"SELECT {', '.join(f't.{column}' for column in COLUMNS.split(', '))} FROM bus_tasks t"
    " JOIN bus_workers w ON w.name = t.worker WHERE t.state = 'offered' AND t.is_fetched = 0"
    " AND (w.poll IS NULL OR w.poll_until <= ?1) ORDER BY t.rank, t.id LIMIT 1"
)


@dataclass(frozen=True, kw_only=True)
class Polled:
    """What a worker is told."""

    task: Task | None = None
    is_superseded: bool = False
    """Another poll of the same worker has taken the place of this one."""
    was_reset: bool = False


def register(name: str, owner: str, times: Times) -> Script[tuple[WorkerName, list[Task]]]:
    """Take a worker in, and offer what is queued; a name that is taken gets a number.

    An owner that comes again gets the name that it had: its first answer got lost on the way.
    """
    ((now,),) = yield NOW
    for number in range(NAMES_TRIED):
        tried = WorkerName(name if number == 0 else f"{name[:59]}-{number}")
        yield forgotten(now, times, tried)
        rows = yield Statement(
            "INSERT INTO bus_workers (name, owner, registered_at, seen_at, idle_since, resets) VALUES (?1, ?2, ?3, ?3, ?3, 0)"
            " ON CONFLICT DO NOTHING RETURNING name",
            (tried, owner, now),
        )
        if rows:
            return tried, (yield from dispatch(now, times))
        if (yield Statement("SELECT 1 FROM bus_workers WHERE name = ?1 AND owner = ?2", (tried, owner))):
            return tried, []
    raise QueueOverloaded(f"{NAMES_TRIED} workers have names like `{name}` already.", hint="choose another name")


def forgotten(now: float, times: Times, name: str | None = None) -> Statement:
    """Remove workers of whom nothing was heard for long, or the one of this name if it is such a one."""
    return Statement(
        "DELETE FROM bus_workers WHERE task IS NULL AND seen_at < ?1 AND idle_since < ?1 AND coalesce(poll_until, 0) < ?2"
        + (" AND name = ?3" if name is not None else ""),
        (now - times.forget_s, now, *(() if name is None else (name,))),
    )


def start_poll(name: str, poll: PollId, wait_s: float, times: Times) -> Script[tuple[Polled, int]]:
    """Begin to wait, in the place of whoever waited under this name; with it, how often the worker was reset."""
    ((now,),) = yield NOW
    worker = yield from required_worker(name)
    yield Statement(
        "UPDATE bus_workers SET poll = ?2, poll_until = ?3, seen_at = ?4 WHERE name = ?1",
        (name, poll, now + wait_s, now),
    )
    task = yield from _taken(worker, now, times)
    return Polled(task=task), worker.resets


def look(name: str, poll: PollId, resets: int, times: Times) -> Script[Polled]:
    """Look whether something has come for a worker that waits."""
    ((now,),) = yield NOW
    worker = yield from required_worker(name)
    if worker.resets != resets:
        return Polled(was_reset=True)
    if worker.poll != poll:
        return Polled(is_superseded=True)
    task = yield from _taken(worker, now, times)
    return Polled(task=task)


def end_poll(name: str, poll: PollId, times: Times, *, give_back: bool) -> Script[list[Task]]:
    """Stop waiting; an offer that nobody will read goes back at once."""
    ((now,),) = yield NOW
    worker = yield from find_worker(name)
    if worker is None or worker.poll != poll:
        return []
    yield Statement(
        "UPDATE bus_workers SET poll = NULL, poll_until = NULL, seen_at = ?2 WHERE name = ?1",
        (name, 0.0 if give_back else now),
    )
    if not give_back:
        return []
    task = yield from held_by(worker)
    if task is not None and task.state == "offered":
        yield from requeue(task, now, "given back")
    return (yield from dispatch(now, times))


def required_worker(name: str) -> Script[Worker]:
    """Find a worker, or say how one comes to be."""
    worker = yield from find_worker(name)
    if worker is None:
        raise NotFound(f"No worker is called `{name}`.", hint="`register_worker` first", worker=name)
    return worker


def _taken(worker: Worker, now: float, times: Times) -> Script[Task | None]:
    held = yield from held_by(worker)
    if held is not None and held.state == "running":
        raise InvalidRequest(
            f"The worker `{worker.name}` has the task `{held.id}`.",
            hint="end it with `worker_done` or `task_failed`, or let it go: `reset_worker`",
            worker=worker.name,
            bead_id=held.id,
        )
    if held is not None:
        rows = yield Statement(_FETCH, (held.id, now + times.offer_s))
        return tasks_of(rows)[0] if rows else None
    task = yield from next_task(now)
    if task is None:
        task = yield from _reserved_elsewhere(now)
    return None if task is None else (yield from offer(task, worker.name, now, times, is_fetched=True))


def _reserved_elsewhere(now: float) -> Script[Task | None]:
    """Take what is kept for a worker that is not there to take it."""
    found = tasks_of((yield Statement(_RESERVED, (now,))))
    if not found:
        return None
    rows = yield Statement(
        "UPDATE bus_tasks SET state = 'queued', worker = NULL, token = NULL"
        f" WHERE id = ?1 AND state = 'offered' AND is_fetched = 0 AND token = ?2 RETURNING {COLUMNS}",
        (found[0].id, found[0].token),
    )
    if not rows:
        return None
    yield Statement("UPDATE bus_workers SET task = NULL WHERE name = ?1 AND task = ?2", (found[0].worker, found[0].id))
    yield note(found[0].id, now, "passed on", worker=found[0].worker)
    return tasks_of(rows)[0]
