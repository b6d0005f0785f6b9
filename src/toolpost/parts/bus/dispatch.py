"""Dispatch: queued tasks are offered to free workers, and taken from them again."""

import secrets
from typing import Final, NamedTuple

import msgspec

from toolpost.parts.bus.tasks import (
    OFFERED_COLUMNS,
    Lease,
    LeaseToken,
    Offered,
    PollId,
    PollingWorker,
    Times,
    WorkerName,
    find_offered,
    note,
    parse_offered,
)
from toolpost.store.scripts import Row, Script, Statement, Together

AT_ONCE: Final = 32
"""How many offers one transaction makes at most."""

_NOBODY: Final = "-"

# The worker and its poll in one value, so that workers are looked at only if there is a task for one.
_POLLING: Final = (
    "(SELECT poll || ' ' || name FROM bus_workers WHERE task IS NULL AND poll IS NOT NULL AND poll_until > ?1"
    " ORDER BY idle_since, name LIMIT 1 /*skip locked*/)"
)
_PRESENT: Final = (
    f"(SELECT '{_NOBODY} ' || name FROM bus_workers WHERE task IS NULL AND seen_at > ?2"
    " ORDER BY idle_since, name LIMIT 1 /*skip locked*/)"
)
_NEXT: Final = "state = 'queued' AND not_before <= ?1 ORDER BY rank, id LIMIT 1 /*skip locked*/"
_MATCH: Final = (
    f"SELECT {OFFERED_COLUMNS}, coalesce({_POLLING}, {_PRESENT}) FROM bus_tasks"
    f" WHERE EXISTS (SELECT 1 FROM bus_workers WHERE task IS NULL) AND {_NEXT}"
)
# Mostly it goes to whoever asks, who comes for the rest of it.
_MATCH_OR: Final = (
    f"SELECT id, attempt, leases, coalesce({_POLLING}, {_PRESENT}, CAST(?3 AS TEXT)) FROM bus_tasks WHERE {_NEXT}"
)
_NEXT_TASK: Final = f"SELECT {OFFERED_COLUMNS} FROM bus_tasks WHERE {_NEXT}"
_MATCHED: Final = f"SELECT {OFFERED_COLUMNS} FROM bus_tasks WHERE id = ?1"
_OFFER: Final = (
    "UPDATE bus_tasks SET state = 'offered', worker = ?2, token = ?3, expires_at = ?4, is_fetched = ?5, leases = ?6,"
    " changed_at = ?7 WHERE id = ?1"
)
GIVE: Final = "UPDATE bus_workers SET task = ?2 WHERE name = ?1"
_REQUEUE: Final = (
    "UPDATE bus_tasks SET state = 'queued', worker = NULL, token = NULL, expires_at = NULL, is_fetched = 0,"
    " not_before = ?2, changed_at = ?3 WHERE id = ?1"
)
_FREE: Final = "UPDATE bus_workers SET task = NULL, idle_since = ?3 WHERE name = ?1 AND task = ?2"
# The poll that brought a task to a worker is over once the task runs, which nobody needs to know before it is free again.
_FREE_AFTER_WORK: Final = (
    "UPDATE bus_workers SET task = ?5, idle_since = ?3, seen_at = ?4, poll = NULL, poll_until = NULL"
    " WHERE name = ?1 AND task = ?2"
)


class Offer(NamedTuple):
    """A task that was offered to its worker."""

    task: Offered
    poll: PollId | None
    """Which waits for it, here or elsewhere; with none, the worker finds it when it comes."""


def dispatch(now: float, times: Times, *on_the_way: Statement, at_most: int = AT_ONCE) -> Script[list[Offer]]:
    """Offer what is queued to whoever is free, polling workers first, then the one idle longest.

    Whoever has brought one task or freed one worker makes one offer at most. What else is to be written goes with the first look.
    """
    offers: list[Offer] = []
    match = Statement(_MATCH, (now, now - times.present_s))
    rows = yield Together((match, *on_the_way)) if on_the_way else match
    while rows and rows[0][-1] is not None:
        offers.append((yield from _offer_match(rows[0], now, times)))
        if len(offers) >= at_most:
            break
        rows = yield match
    return offers


def pass_on(over: Lease, now: float, times: Times, *on_the_way: Statement) -> Script[list[Offer]]:
    """Offer the next task to whoever is free, at the latest to the worker whose task is over and who is free from now on.

    That one finds it when it comes; of others it is told.
    """
    who = f"{_NOBODY} {over.worker}"
    rows = yield Together((Statement(_MATCH_OR, (now, now - times.present_s, who)), *on_the_way))
    if not rows:
        yield free_worker(over, now, seen_at=now)
        return []
    task, attempt, leases, found = rows[0]
    if found == who and over.worker is not None:
        given = Statement(_FREE_AFTER_WORK, (over.worker, over.id, now, now, task))
        values = (task, over.worker, _new_token(), now + times.offer_s, 0, leases + 1, now)
        yield Together(
            (Statement(_OFFER, values), given, note(task, now, "offered", worker=over.worker, attempt=attempt))
        )
        return []
    rows = yield Together((Statement(_MATCHED, (task,)), free_worker(over, now, seen_at=now)))
    return [(yield from _offer_match((*rows[0], found), now, times))]


def _offer_match(row: Row, now: float, times: Times) -> Script[Offer]:
    *columns, who = row
    poll, _, name = who.partition(" ")
    task = Offered(*columns)
    offered = yield from offer(task, name, now, times, Statement(GIVE, (name, task.id)), is_fetched=poll in times.polls)
    return Offer(offered, None if poll == _NOBODY else PollId(poll))


def next_task(now: float) -> Script[Offered | None]:
    """Find the task whose turn it is, and keep it for this transaction."""
    rows = yield Statement(_NEXT_TASK, (now,))
    return parse_offered(rows)[0] if rows else None


def offer(
    task: Offered, worker: str, now: float, times: Times, given: Statement, *, is_fetched: bool
) -> Script[Offered]:
    """Give a task that this transaction keeps to a worker for a moment, under a new token; `given` writes it to the worker."""
    offered = msgspec.structs.replace(
        task,
        state="offered",
        worker=WorkerName(worker),
        token=_new_token(),
        expires_at=now + times.offer_s,
        is_fetched=int(is_fetched),
        leases=task.leases + 1,
        changed_at=now,
    )
    values = (task.id, worker, offered.token, offered.expires_at, offered.is_fetched, offered.leases, now)
    noted = note(task.id, now, "offered", worker=worker, attempt=task.attempt)
    yield Together((Statement(_OFFER, values), given, noted))
    return offered


def _new_token() -> LeaseToken:
    return LeaseToken(secrets.token_hex(8))


def requeue(task: Lease, now: float, kind: str, *, not_before: float = 0.0, detail: str | None = None) -> Script[None]:
    """Take a task from its worker and put it back where it was in the queue."""
    yield Together(
        (
            Statement(_REQUEUE, (task.id, not_before, now)),
            free_worker(task, now),
            note(task.id, now, kind, worker=task.worker, attempt=task.attempt, detail=detail),
        )
    )


def free_worker(task: Lease, now: float, *, seen_at: float | None = None) -> Statement:
    """Let the worker of a task have another one."""
    if task.state != "running":
        return Statement(_FREE, (task.worker, task.id, now))
    return Statement(
        _FREE_AFTER_WORK, (task.worker, task.id, now, task.changed_at if seen_at is None else seen_at, None)
    )


def find_held(worker: PollingWorker) -> Script[Offered | None]:
    """Find the task that a worker has; None if it has none, or no longer."""
    if worker.task is None:
        return None
    task = yield from find_offered(worker.task)
    return task if task is not None and task.worker == worker.name else None
