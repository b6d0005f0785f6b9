"""Dispatch: queued tasks are offered to free workers, or queued again.

The task with the lowest rank is offered first (`submission.py`), to a worker that polls, else to the one that polled within
`present_s` and has been idle longest. An offer is a short lease under a new token: whatever its worker does next must show it, so
that a worker whose lease has expired cannot change the task.
"""

import secrets
from typing import Final, NamedTuple

import msgspec

from toolpost.parts.bus.tasks import (
    WORKER_TASK_COLUMNS,
    BusPolicy,
    LeasedTask,
    LeaseToken,
    PollId,
    PollingWorker,
    WorkerName,
    WorkerTask,
    find_worker_task,
    insert_event,
    parse_worker_tasks,
)
from toolpost.store import Batch, Row, Script, Statement

OFFERS_LIMIT: Final = 32
"""The most offers of one transaction."""

_NO_POLL: Final = "-"

# The worker as one text, `POLL NAME` (`-` for POLL if it does not poll), which `_offer_match` splits: one value of one subquery,
# so that workers are read only if there is a task to offer.
_POLLING_WORKER: Final = (
    "(SELECT poll || ' ' || name FROM bus_workers WHERE task IS NULL AND poll IS NOT NULL AND poll_until > ?1"
    " ORDER BY idle_since, name LIMIT 1 /*skip locked*/)"
)
_PRESENT_WORKER: Final = (
    f"(SELECT '{_NO_POLL} ' || name FROM bus_workers WHERE task IS NULL AND seen_at > ?2"
    " ORDER BY idle_since, name LIMIT 1 /*skip locked*/)"
)
_NEXT: Final = "state = 'queued' AND not_before <= ?1 ORDER BY rank, id LIMIT 1 /*skip locked*/"
_MATCH: Final = (
    f"SELECT {WORKER_TASK_COLUMNS}, coalesce({_POLLING_WORKER}, {_PRESENT_WORKER}) FROM bus_tasks"
    f" WHERE EXISTS (SELECT 1 FROM bus_workers WHERE task IS NULL) AND {_NEXT}"
)
# Few columns: mostly the task goes to the worker that was just freed, whose next poll reads the rest.
_MATCH_OR_FREED: Final = (
    f"SELECT id, attempt, leases, coalesce({_POLLING_WORKER}, {_PRESENT_WORKER}, CAST(?3 AS TEXT))"
    f" FROM bus_tasks WHERE {_NEXT}"
)
_NEXT_TASK: Final = f"SELECT {WORKER_TASK_COLUMNS} FROM bus_tasks WHERE {_NEXT}"
_SELECT_TASK: Final = f"SELECT {WORKER_TASK_COLUMNS} FROM bus_tasks WHERE id = ?1"
_OFFER: Final = (
    "UPDATE bus_tasks SET state = 'offered', worker = ?2, token = ?3, expires_at = ?4, is_fetched = ?5, leases = ?6,"
    " changed_at = ?7 WHERE id = ?1"
)
ASSIGN: Final = "UPDATE bus_workers SET task = ?2 WHERE name = ?1"
_REQUEUE: Final = (
    "UPDATE bus_tasks SET state = 'queued', worker = NULL, token = NULL, expires_at = NULL, is_fetched = 0,"
    " not_before = ?2, changed_at = ?3 WHERE id = ?1"
)
_FREE: Final = "UPDATE bus_workers SET task = NULL, idle_since = ?3 WHERE name = ?1 AND task = ?2"
# The poll that fetched the task has ended since the task runs; it is cleared only now, which saves an update.
_FREE_AFTER_RUN: Final = (
    "UPDATE bus_workers SET task = ?5, idle_since = ?3, seen_at = ?4, poll = NULL, poll_until = NULL"
    " WHERE name = ?1 AND task = ?2"
)


class Offer(NamedTuple):
    """An offered task, and the poll to wake."""

    task: WorkerTask
    poll: PollId | None
    """The poll that waits for it, in this process or another; None if its worker has to poll first."""


def dispatch(now: float, policy: BusPolicy, *also: Statement, at_most: int = OFFERS_LIMIT) -> Script[list[Offer]]:
    """Offer queued tasks to free workers, polling ones first, then the one idle longest.

    The statements of `also` are run together with the first read, which saves a round trip.
    """
    offers: list[Offer] = []
    match = Statement(_MATCH, (now, now - policy.present_s))
    # The match sees the tables as they were before `also`, which must not change the rows that it reads.
    rows = yield Batch((match, *also)) if also else match
    while rows and rows[0][-1] is not None:
        offers.append((yield from _offer_match(rows[0], now, policy)))
        if len(offers) >= at_most:
            break
        rows = yield match
    return offers


def offer_next(ended: LeasedTask, now: float, policy: BusPolicy, *also: Statement) -> Script[list[Offer]]:
    """Free the worker of a task that has ended, and offer the next task to a free worker, to this one if there is no other.

    The freed worker gets its offer with its next poll; only an offer to another worker is returned, so that it can be woken.
    """
    freed = f"{_NO_POLL} {ended.worker}"
    rows = yield Batch((Statement(_MATCH_OR_FREED, (now, now - policy.present_s, freed)), *also))
    if not rows:
        yield free_worker(ended, now, seen_at=now)
        return []
    task, attempt, leases, match = rows[0]
    if match == freed and ended.worker is not None:
        assign = Statement(_FREE_AFTER_RUN, (ended.worker, ended.id, now, now, task))
        values = (task, ended.worker, _new_token(), now + policy.offer_s, 0, leases + 1, now)
        offered = insert_event(task, now, "offered", worker=ended.worker, attempt=attempt)
        yield Batch((Statement(_OFFER, values), assign, offered))
        return []
    rows = yield Batch((Statement(_SELECT_TASK, (task,)), free_worker(ended, now, seen_at=now)))
    return [(yield from _offer_match((*rows[0], match), now, policy))]


def _offer_match(row: Row, now: float, policy: BusPolicy) -> Script[Offer]:
    *columns, match = row
    poll, _, name = match.partition(" ")
    task = WorkerTask(*columns)
    offered = yield from offer(
        task, name, now, policy, Statement(ASSIGN, (name, task.id)), is_fetched=poll in policy.polls
    )
    return Offer(offered, None if poll == _NO_POLL else PollId(poll))


def next_task(now: float) -> Script[WorkerTask | None]:
    """Find the queued task with the lowest rank, and lock its row."""
    rows = yield Statement(_NEXT_TASK, (now,))
    return parse_worker_tasks(rows)[0] if rows else None


def offer(
    task: WorkerTask, worker: str, now: float, policy: BusPolicy, assign: Statement, *, is_fetched: bool
) -> Script[WorkerTask]:
    """Offer a task, whose row is locked, under a new token; `assign` is the update of its worker's row."""
    offered = msgspec.structs.replace(
        task,
        state="offered",
        worker=WorkerName(worker),
        token=_new_token(),
        expires_at=now + policy.offer_s,
        is_fetched=int(is_fetched),
        leases=task.leases + 1,
        changed_at=now,
    )
    values = (task.id, worker, offered.token, offered.expires_at, offered.is_fetched, offered.leases, now)
    yield Batch(
        (
            Statement(_OFFER, values),
            assign,
            insert_event(task.id, now, "offered", worker=worker, attempt=task.attempt),
        )
    )
    return offered


def _new_token() -> LeaseToken:
    return LeaseToken(secrets.token_hex(8))


def requeue(
    task: LeasedTask, now: float, kind: str, *, not_before: float = 0.0, detail: str | None = None
) -> Script[None]:
    """Take a task from its worker, and queue it with the rank that it had; `kind` is the event of its history."""
    yield Batch(
        (
            Statement(_REQUEUE, (task.id, not_before, now)),
            free_worker(task, now),
            insert_event(task.id, now, kind, worker=task.worker, attempt=task.attempt, detail=detail),
        )
    )


def free_worker(task: LeasedTask, now: float, *, seen_at: float | None = None) -> Statement:
    """Return the statement that frees the worker of a task."""
    if task.state != "running":
        return Statement(_FREE, (task.worker, task.id, now))
    return Statement(
        _FREE_AFTER_RUN, (task.worker, task.id, now, task.changed_at if seen_at is None else seen_at, None)
    )


def find_held_task(worker: PollingWorker) -> Script[WorkerTask | None]:
    """Find the task that a worker has, and lock its row; None if it has none, or not any longer."""
    if worker.task is None:
        return None
    task = yield from find_worker_task(worker.task)
    return task if task is not None and task.worker == worker.name else None
