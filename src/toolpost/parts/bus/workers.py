"""Workers: their registration under a unique name, and their polls for the next task.

A worker has one poll at a time; a newer one supersedes it. The row of the worker stores the id of its poll and until when it
waits, so that dispatch in any process knows which workers wait.
"""

from typing import Final

import msgspec

from toolpost import Caller, Forbidden, NotFound, QueueOverloaded
from toolpost.contracts import InvalidRequest
from toolpost.parts.bus.dispatch import ASSIGN, Offer, dispatch, find_held_task, next_task, offer, requeue
from toolpost.parts.bus.tasks import (
    POLLING_COLUMNS,
    WORKER_TASK_COLUMNS,
    BusPolicy,
    PollId,
    PollingWorker,
    Worker,
    WorkerName,
    WorkerTask,
    find_worker,
    insert_event,
    parse_worker_tasks,
)
from toolpost.store import NOW, Batch, Row, Script, Statement, change

NAME_ATTEMPTS: Final = 1_000
FRESH_OFFER_S: Final = 1.0
"""An offer up to this old is fetched as it is, without an update that extends its lease."""

_WORKER_FIELDS: Final = POLLING_COLUMNS.split(", ")
_TASK_FIELDS: Final = WORKER_TASK_COLUMNS.split(", ")
_WORKER_AND_TASK: Final = (
    f"SELECT {', '.join(f'w.{column}' for column in _WORKER_FIELDS)}, {', '.join(f't.{column}' for column in _TASK_FIELDS)}"
    " FROM bus_workers w"
    " LEFT JOIN bus_tasks t ON t.id = w.task AND t.worker = w.name WHERE w.name = ?1 /*lock w*/"
)
_FETCH: Final = (
    "UPDATE bus_tasks SET is_fetched = 1, expires_at = ?3 WHERE id = ?1 AND token = ?2 AND state = 'offered'"
)
_STORE_POLL: Final = "UPDATE bus_workers SET poll = ?2, poll_until = ?3, seen_at = ?4 WHERE name = ?1"
_STORE_POLL_AND_TASK: Final = (
    "UPDATE bus_workers SET poll = ?2, poll_until = ?3, seen_at = ?4, task = ?5 WHERE name = ?1"
)
_UNFETCHED: Final = (
    f"SELECT {', '.join(f't.{column}' for column in _TASK_FIELDS)} FROM bus_tasks t JOIN bus_workers w ON w.name = t.worker"
    " WHERE t.state = 'offered' AND t.is_fetched = 0"
    " AND (w.poll IS NULL OR w.poll_until <= ?1) ORDER BY t.rank, t.id LIMIT 1 /*skip locked w*/"
)


class PollAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a poll; an empty one after the last check means that it timed out."""

    task: WorkerTask | None = None
    is_superseded: bool = False
    """Whether a newer poll of the same worker has replaced this one."""
    was_reset: bool = False

    @property
    def is_empty(self) -> bool:
        return self.task is None and not self.is_superseded and not self.was_reset


def register(name: str, registration_key: str, by: Caller, policy: BusPolicy) -> Script[tuple[WorkerName, list[Offer]]]:
    """Register a worker, and offer it a queued task; a name that is taken gets a number.

    The same `registration_key` gets the name that it had: it repeats a registration whose answer was lost.
    """
    ((now,),) = yield NOW
    for number in range(NAME_ATTEMPTS):
        candidate = WorkerName(name if number == 0 else f"{name[:59]}-{number}")
        yield delete_absent_workers(now, policy, candidate)
        rows = yield Statement(
            "INSERT INTO bus_workers (name, owner, registered_at, seen_at, idle_since, resets, caller)"
            " VALUES (?1, ?2, ?3, ?3, ?3, 0, ?4) ON CONFLICT DO NOTHING RETURNING name",
            (candidate, registration_key, now, by.id),
        )
        if rows:
            return candidate, (yield from dispatch(now, policy))
        find_own = "SELECT 1 FROM bus_workers WHERE name = ?1 AND owner = ?2 AND caller = ?3"
        if (yield Statement(find_own, (candidate, registration_key, by.id))):
            return candidate, []
    raise QueueOverloaded(
        f"{NAME_ATTEMPTS} workers have names like `{name}` already.", retry_s=60, hint="choose another name"
    )


def delete_absent_workers(now: float, policy: BusPolicy, name: str | None = None) -> Statement:
    """Return the statement that deletes idle workers which have not polled for `forget_s`; with `name` only that one."""
    return Statement(
        "DELETE FROM bus_workers WHERE task IS NULL AND seen_at < ?1 AND idle_since < ?1 AND coalesce(poll_until, 0) < ?2"
        + (" AND name = ?3" if name is not None else ""),
        (now - policy.forget_s, now, *(() if name is None else (name,))),
    )


class StartedPoll(msgspec.Struct, frozen=True, kw_only=True):
    """The first answer of a poll, and what later checks compare with."""

    answer: PollAnswer
    resets: int
    """How often the worker had been reset when the poll started."""
    supersedes: bool
    """Whether it ends an older poll of the same worker."""


def start_poll(name: str, poll: PollId, wait_s: float, by: Caller, policy: BusPolicy) -> Script[StartedPoll]:
    """Store a poll of a worker in place of an older one, and take its next task if there is one."""
    ((now,),) = yield NOW
    worker, held = yield from _find_polling_worker(name, by)
    task = yield from _take_next(worker, held, now, policy, (name, poll, now + wait_s, now))
    supersedes = worker.is_polling(now) and worker.poll != poll
    return StartedPoll(answer=PollAnswer(task=task), resets=worker.resets, supersedes=supersedes)


def check_poll(name: str, poll: PollId, resets: int, by: Caller, policy: BusPolicy) -> Script[PollAnswer]:
    """Check a poll that waits: for a task, a reset, or a newer poll."""
    ((now,),) = yield NOW
    worker, held = yield from _find_polling_worker(name, by)
    if worker.resets != resets:
        return PollAnswer(was_reset=True)
    if worker.poll != poll:
        return PollAnswer(is_superseded=True)
    return PollAnswer(task=(yield from _take_next(worker, held, now, policy, None)))


def end_poll(name: str, poll: PollId, policy: BusPolicy, *, give_back: bool) -> Script[list[Offer]]:
    """End a poll, if it was not superseded; with `give_back`, a task that was offered to its worker is queued again."""
    ((now,),) = yield NOW
    worker = yield from find_worker(name)
    if worker is None or worker.poll != poll:
        return []
    yield Statement(
        "UPDATE bus_workers SET poll = NULL, poll_until = NULL, seen_at = ?2 WHERE name = ?1",
        # A poll that was cancelled has no client: its worker gets no offers until it polls again.
        (name, 0.0 if give_back else now),
    )
    if not give_back:
        return []
    task = yield from find_held_task(worker)
    if task is not None and task.state == "offered":
        yield from requeue(task, now, "given back")
    return (yield from dispatch(now, policy))


def require_worker(name: str, by: Caller) -> Script[Worker]:
    """Return a worker that this caller may act on; raises `NotFound` or `Forbidden`."""
    worker = yield from find_worker(name)
    if worker is None:
        raise _make_unknown_worker(name)
    if worker.caller != by.id and not by.is_admin:
        raise make_foreign_worker(name)
    return worker


def make_foreign_worker(name: str) -> Forbidden:
    return Forbidden(
        f"The worker `{name}` was registered by another caller.",
        hint="`register_worker` gives you one of your own; its own caller or an administrator can reset this one",
        worker=name,
    )


def _make_unknown_worker(name: str) -> NotFound:
    return NotFound(f"Unknown worker `{name}`.", hint="`register_worker` first", worker=name)


def _find_polling_worker(name: str, by: Caller) -> Script[tuple[PollingWorker, WorkerTask | None]]:
    """Find a worker of this caller, and the task that it has; raises `NotFound` or `Forbidden`."""
    rows = yield Statement(_WORKER_AND_TASK, (name,))
    if not rows:
        raise _make_unknown_worker(name)
    worker = PollingWorker(*rows[0][: len(_WORKER_FIELDS)])
    # Administrators included: the answer contains the lease token.
    if worker.caller != by.id:
        raise make_foreign_worker(name)
    if worker.task is None:
        return worker, None
    row = rows[0][len(_WORKER_FIELDS) :]
    # A worker with a task, but no row of the task: on PostgreSQL it was assigned while this statement waited for the worker's
    # lock, and the join saw the task as it was before.
    return worker, WorkerTask(*row) if row[0] is not None else (yield from find_held_task(worker))


def _take_next(
    worker: PollingWorker, held: WorkerTask | None, now: float, policy: BusPolicy, poll_row: Row | None
) -> Script[WorkerTask | None]:
    """Take the task that a worker was offered, else the next one; None if there is none.

    `poll_row` has the columns of its poll, None if they are stored already. Raises `InvalidRequest` if the worker runs a task.
    """
    if held is not None and held.state == "running":
        raise _make_busy_worker(worker)
    store_poll = () if poll_row is None else (Statement(_STORE_POLL, (*poll_row,)),)
    if held is not None and poll_row is not None and _is_fresh(held, now, policy):
        # The offer is not marked as fetched, which saves an update: `_UNFETCHED` leaves out offers whose worker polls, so the
        # poll is stored for as long as the offer lasts.
        name, poll, until, _ = poll_row
        yield Statement(_STORE_POLL, (name, poll, max(until, held.expires_at), now))
        return held
    if held is not None:
        return (yield from _fetch(worker, held, now + policy.offer_s, store_poll))
    task = yield from next_task(now)
    if task is None:
        task = yield from _take_unfetched(now)
    if task is not None:
        if poll_row is None:
            assign = Statement(ASSIGN, (worker.name, task.id))
        else:
            assign = Statement(_STORE_POLL_AND_TASK, (*poll_row, task.id))
        return (yield from offer(task, worker.name, now, policy, assign, is_fetched=True))
    if store_poll:
        yield store_poll[0]
    return None


def _is_fresh(held: WorkerTask, now: float, policy: BusPolicy) -> bool:
    # Of a short offer a tenth may have passed: the worker still has nine tenths of it to acknowledge the task.
    return held.expires_at is not None and held.expires_at > now + policy.offer_s - min(
        FRESH_OFFER_S, policy.offer_s / 10
    )


def _fetch(
    worker: PollingWorker, held: WorkerTask, expires_at: float, store_poll: tuple[Statement, ...]
) -> Script[WorkerTask | None]:
    """Mark an offer as fetched, and extend it; None if it was taken from the worker before."""
    fetch = change(_FETCH, (held.id, held.token, expires_at))
    if (yield Batch((fetch, *store_poll))):
        return msgspec.structs.replace(held, is_fetched=1, expires_at=expires_at)
    found = yield from find_held_task(worker)
    if found is not None and found.state == "running":
        raise _make_busy_worker(worker)
    return None


def _make_busy_worker(worker: PollingWorker) -> InvalidRequest:
    return InvalidRequest(
        f"The worker `{worker.name}` has the task `{worker.task}`.",
        hint="end it with `worker_done` or `task_failed`, or give it back with `reset_worker`",
        worker=worker.name,
        bead_id=worker.task,
    )


def _take_unfetched(now: float) -> Script[WorkerTask | None]:
    """Take a task that is offered to a worker which does not poll; None if there is none."""
    found = parse_worker_tasks((yield Statement(_UNFETCHED, (now,))))
    if not found:
        return None
    (task,) = found
    rows = yield Statement(
        "UPDATE bus_tasks SET state = 'queued', worker = NULL, token = NULL"
        " WHERE id = ?1 AND state = 'offered' AND is_fetched = 0 AND token = ?2 RETURNING id",
        (task.id, task.token),
    )
    if not rows:
        return None
    yield Batch(
        (
            Statement("UPDATE bus_workers SET task = NULL WHERE name = ?1 AND task = ?2", (task.worker, task.id)),
            insert_event(task.id, now, "passed on", worker=task.worker),
        )
    )
    return task
