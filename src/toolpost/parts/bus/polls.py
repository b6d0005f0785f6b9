"""Workers: their registration under a unique name, and their polls for the next task."""

from typing import Final

import msgspec

from toolpost.base.caller import Caller
from toolpost.contracts.errors import Forbidden, InvalidRequest, NotFound, QueueOverloaded
from toolpost.parts.bus.dispatch import GIVE, Offer, dispatch, find_held, next_task, offer, requeue
from toolpost.parts.bus.tasks import (
    OFFERED_COLUMNS,
    POLLING_COLUMNS,
    Offered,
    PollId,
    PollingWorker,
    Times,
    Worker,
    WorkerName,
    find_worker,
    note,
    parse_offered,
)
from toolpost.store.scripts import NOW, Row, Script, Statement, Together, change

NAMES_TRIED: Final = 1_000
FRESH_S: Final = 1.0
"""Up to this age an offer is fetched without extending its lease."""

_COMER: Final = POLLING_COLUMNS.split(", ")
_OFFERED: Final = OFFERED_COLUMNS.split(", ")
_COMING: Final = (
    f"SELECT {', '.join(f'w.{column}' for column in _COMER)}, {', '.join(f't.{column}' for column in _OFFERED)}"
    " FROM bus_workers w"
    " LEFT JOIN bus_tasks t ON t.id = w.task AND t.worker = w.name WHERE w.name = ?1 /*lock w*/"
)
_FETCH: Final = (
    "UPDATE bus_tasks SET is_fetched = 1, expires_at = ?3 WHERE id = ?1 AND token = ?2 AND state = 'offered'"
)
_WAIT: Final = "UPDATE bus_workers SET poll = ?2, poll_until = ?3, seen_at = ?4 WHERE name = ?1"
_WAIT_WITH: Final = "UPDATE bus_workers SET poll = ?2, poll_until = ?3, seen_at = ?4, task = ?5 WHERE name = ?1"
_RESERVED: Final = (
    f"SELECT {', '.join(f't.{column}' for column in _OFFERED)} FROM bus_tasks t JOIN bus_workers w ON w.name = t.worker"
    " WHERE t.state = 'offered' AND t.is_fetched = 0"
    " AND (w.poll IS NULL OR w.poll_until <= ?1) ORDER BY t.rank, t.id LIMIT 1 /*skip locked w*/"
)


class Polled(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a poll; without a task and a reason, its time is up."""

    task: Offered | None = None
    is_superseded: bool = False
    """Another poll of the same worker has taken the place of this one."""
    was_reset: bool = False


def register(name: str, owner: str, by: Caller, times: Times) -> Script[tuple[WorkerName, list[Offer]]]:
    """Take a worker in, and offer what is queued; a name that is taken gets a number.

    An owner that comes again gets the name that it had: its first answer got lost on the way.
    """
    ((now,),) = yield NOW
    for number in range(NAMES_TRIED):
        tried = WorkerName(name if number == 0 else f"{name[:59]}-{number}")
        yield forget_workers(now, times, tried)
        rows = yield Statement(
            "INSERT INTO bus_workers (name, owner, registered_at, seen_at, idle_since, resets, caller)"
            " VALUES (?1, ?2, ?3, ?3, ?3, 0, ?4) ON CONFLICT DO NOTHING RETURNING name",
            (tried, owner, now, by.id),
        )
        if rows:
            return tried, (yield from dispatch(now, times))
        known = Statement(
            "SELECT 1 FROM bus_workers WHERE name = ?1 AND owner = ?2 AND caller = ?3", (tried, owner, by.id)
        )
        if (yield known):
            return tried, []
    raise QueueOverloaded(
        f"{NAMES_TRIED} workers have names like `{name}` already.", retry_s=60, hint="choose another name"
    )


def forget_workers(now: float, times: Times, name: str | None = None) -> Statement:
    """Remove workers of whom nothing was heard for long, or the one of this name if it is such a one."""
    return Statement(
        "DELETE FROM bus_workers WHERE task IS NULL AND seen_at < ?1 AND idle_since < ?1 AND coalesce(poll_until, 0) < ?2"
        + (" AND name = ?3" if name is not None else ""),
        (now - times.forget_s, now, *(() if name is None else (name,))),
    )


class StartedPoll(msgspec.Struct, frozen=True, kw_only=True):
    """The first answer of a poll, and what later looks compare with."""

    polled: Polled
    resets: int
    """How often the worker had been reset when the poll started."""
    supersedes: bool
    """Whether it ends an older poll of the same worker."""


def start_poll(name: str, poll: PollId, wait_s: float, by: Caller, times: Times) -> Script[StartedPoll]:
    """Start a poll of a worker, which ends an older one; return the task if there is one."""
    ((now,),) = yield NOW
    worker, held = yield from _find_polling(name, by)
    task = yield from _take_next(worker, held, now, times, (name, poll, now + wait_s, now))
    supersedes = worker.is_polling(now) and worker.poll != poll
    return StartedPoll(polled=Polled(task=task), resets=worker.resets, supersedes=supersedes)


def look(name: str, poll: PollId, resets: int, by: Caller, times: Times) -> Script[Polled]:
    """Return what has come for a poll that waits: a task, a reset, or a newer poll."""
    ((now,),) = yield NOW
    worker, held = yield from _find_polling(name, by)
    if worker.resets != resets:
        return Polled(was_reset=True)
    if worker.poll != poll:
        return Polled(is_superseded=True)
    return Polled(task=(yield from _take_next(worker, held, now, times, None)))


def end_poll(name: str, poll: PollId, times: Times, *, give_back: bool) -> Script[list[Offer]]:
    """End a poll; with `give_back`, an offer that its worker has not read is queued again."""
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
    task = yield from find_held(worker)
    if task is not None and task.state == "offered":
        yield from requeue(task, now, "given back")
    return (yield from dispatch(now, times))


def require_worker(name: str, by: Caller) -> Script[Worker]:
    """Return a worker that this caller may act on; raises `NotFound` or `Forbidden`."""
    worker = yield from find_worker(name)
    if worker is None:
        raise _make_unknown(name)
    if worker.caller != by.id and not by.is_admin:
        raise make_not_yours(name)
    return worker


def make_not_yours(name: str) -> Forbidden:
    return Forbidden(
        f"The worker `{name}` was registered by another caller.",
        hint="`register_worker` gives you one of your own; its own caller or an administrator can reset this one",
        worker=name,
    )


def _make_unknown(name: str) -> NotFound:
    return NotFound(f"Unknown worker `{name}`.", hint="`register_worker` first", worker=name)


def _find_polling(name: str, by: Caller) -> Script[tuple[PollingWorker, Offered | None]]:
    """Find a worker of this caller, and the task that it has."""
    rows = yield Statement(_COMING, (name,))
    if not rows:
        raise _make_unknown(name)
    worker = PollingWorker(*rows[0][: len(_COMER)])
    # Not even an administrator polls for another caller: the answer has the lease token.
    if worker.caller != by.id:
        raise make_not_yours(name)
    if worker.task is None:
        return worker, None
    row = rows[0][len(_COMER) :]
    # Not there: it was given just now, by somebody whom this one waited for.
    return worker, Offered(*row) if row[0] is not None else (yield from find_held(worker))


def _take_next(
    worker: PollingWorker, held: Offered | None, now: float, times: Times, waits: Row | None
) -> Script[Offered | None]:
    """Offer a worker its next task; `waits` is what is stored of its poll, None if that is stored already."""
    if held is not None and held.state == "running":
        raise _make_busy(worker)
    waiting = () if waits is None else (Statement(_WAIT, (*waits,)),)
    if held is not None and waits is not None and _is_fresh(held, now, times):
        # Whoever looks for offers that nobody comes for sees by the poll that somebody has.
        name, poll, until, _ = waits
        yield Statement(_WAIT, (name, poll, max(until, held.expires_at), now))
        return held
    if held is not None:
        return (yield from _fetch(worker, held, now + times.offer_s, waiting))
    task = yield from next_task(now)
    if task is None:
        task = yield from _take_reserved(now)
    if task is not None:
        given = Statement(GIVE, (worker.name, task.id)) if waits is None else Statement(_WAIT_WITH, (*waits, task.id))
        return (yield from offer(task, worker.name, now, times, given, is_fetched=True))
    if waiting:
        yield waiting[0]
    return None


def _is_fresh(held: Offered, now: float, times: Times) -> bool:
    return held.expires_at is not None and held.expires_at > now + times.offer_s - min(FRESH_S, times.offer_s / 10)


def _fetch(
    worker: PollingWorker, held: Offered, expires_at: float, waiting: tuple[Statement, ...]
) -> Script[Offered | None]:
    """Give a worker what was offered to it."""
    fetch = change(_FETCH, (held.id, held.token, expires_at))
    if (yield Together((fetch, *waiting))):
        return msgspec.structs.replace(held, is_fetched=1, expires_at=expires_at)
    found = yield from find_held(worker)
    if found is not None and found.state == "running":
        raise _make_busy(worker)
    return None


def _make_busy(worker: PollingWorker) -> InvalidRequest:
    return InvalidRequest(
        f"The worker `{worker.name}` has the task `{worker.task}`.",
        hint="end it with `worker_done` or `task_failed`, or let it go: `reset_worker`",
        worker=worker.name,
        bead_id=worker.task,
    )


def _take_reserved(now: float) -> Script[Offered | None]:
    """Take a task that is offered to a worker which does not poll."""
    found = parse_offered((yield Statement(_RESERVED, (now,))))
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
    yield Together(
        (
            Statement("UPDATE bus_workers SET task = NULL WHERE name = ?1 AND task = ?2", (task.worker, task.id)),
            note(task.id, now, "passed on", worker=task.worker),
        )
    )
    return task
