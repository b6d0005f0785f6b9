"""A task and a worker as values, and as rows."""

import itertools
import secrets
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, NewType

import msgspec

from toolpost.base.ids import CallerId, Json
from toolpost.store.scripts import Row, Script, Statement

TaskId = NewType("TaskId", str)
WorkerName = NewType("WorkerName", str)
LeaseToken = NewType("LeaseToken", str)
PollId = NewType("PollId", str)

_PROCESS: Final = secrets.randbelow(1024)
_NAME: Final = secrets.token_hex(6)
_polls: Final = itertools.count(1)
_numbered = 0
_numbered_at = 0.0

State = Literal["waiting", "queued", "offered", "running", "done", "blocked", "dead", "cancelled"]

PRIORITIES: Final = range(5)
USUAL_PRIORITY: Final = 2

# As the fields of `Lease`, `Offered` and `Task`, in their order: every column that is read has its price.
LEASE_COLUMNS: Final = "id, state, attempt, leases, worker, token, expires_at, changed_at"
OFFERED_COLUMNS: Final = f"{LEASE_COLUMNS}, is_fetched, priority, payload"
COLUMNS: Final = f"{OFFERED_COLUMNS}, dedupe_key, submitted_by, submitted_at, rank, not_before, reason, result"
ENDED_COLUMNS: Final = f"{COLUMNS}, ended_by"


@dataclass(frozen=True, kw_only=True)
class Times:
    """How long things may take, in seconds, how often they are tried, and who is to be told at once."""

    offer_s: float = 15.0
    """From the answer of a poll to its acknowledgement."""
    run_s: float = 300.0
    """From one sign of life to the next, where the worker's own process renews its lease."""
    stuck_s: float = 1_800.0
    """From the acknowledgement to the end, where nobody renews it."""
    retry_s: float = 5.0
    """Before the second attempt; twice that before the third."""
    retry_limit_s: float = 600.0
    attempts: int = 3
    """How often a task is begun before it is given up."""
    age_s: float = 600.0
    """How long a task must wait to come before a fresh one of the next priority."""
    sweep_s: float = 5.0
    """Between two looks for what has expired, at most: another server may have made a lease that ends before ours."""
    present_s: float = 60.0
    """How long a worker that was heard of is taken to be there."""
    forget_s: float = 3_600.0
    """How long one that was not heard of keeps its name."""
    is_tracked: bool = False
    """Whether what becomes of a task is told to the tracker that it comes from."""
    polls: Container[str] = ()
    """Those that wait in this process: what is offered to them has reached them."""


class Lease(msgspec.Struct, frozen=True, gc=False):
    """Who has a task, and until when: what the steps of its worker ask about."""

    id: TaskId
    state: State
    attempt: int
    leases: int
    worker: WorkerName | None
    token: LeaseToken | None
    expires_at: float | None
    changed_at: float


class Offered(Lease, frozen=True, gc=False):
    """A task, as its worker is told of it."""

    is_fetched: int
    priority: int
    payload: str | None

    @property
    def payload_json(self) -> Json:
        """What was sent along, None if nothing."""
        return None if self.payload is None else msgspec.json.decode(self.payload)


class Task(Offered, frozen=True, gc=False):
    """One task, as it is now."""

    dedupe_key: str | None
    submitted_by: str
    submitted_at: float
    rank: float
    not_before: float
    reason: str | None
    result: str | None

    @property
    def result_json(self) -> Json:
        """What came of it, None if nothing."""
        return None if self.result is None else msgspec.json.decode(self.result)


class EndedTask(Task, frozen=True, gc=False):
    """A task that is over."""

    ended_by: CallerId | None
    """Whose worker said so; None if an operator or a lease that ran out ended it, or a version that did not write it down."""


class PollingWorker(msgspec.Struct, frozen=True, gc=False):
    """A worker, as its polls ask about it."""

    name: WorkerName
    caller: CallerId | None
    """Who registered it, and alone may use it; None after an upgrade, if an older server registered it meanwhile."""
    task: TaskId | None
    poll: PollId | None
    poll_until: float | None
    resets: int

    def is_polling(self, now: float) -> bool:
        """Whether somebody waits at the other end."""
        return self.poll is not None and (self.poll_until or 0) > now


class Worker(PollingWorker, frozen=True, gc=False):
    """Somebody who does tasks, one at a time."""

    owner: str
    seen_at: float
    idle_since: float


POLLING_COLUMNS: Final = "name, caller, task, poll, poll_until, resets"
WORKER_COLUMNS: Final = f"{POLLING_COLUMNS}, owner, seen_at, idle_since"


# A worker's row stays for as long as it has a task, so whose task it is need not be written down with it.
HELD_BY: Final = "(SELECT w.caller FROM bus_workers w WHERE w.name = bus_tasks.worker)"
_LEASE: Final = f"SELECT {LEASE_COLUMNS}, {HELD_BY} FROM bus_tasks WHERE id = ?1 /*lock*/"
_HOLDER: Final = f"SELECT {HELD_BY} FROM bus_tasks WHERE id = ?1"
_OFFERED: Final = f"SELECT {OFFERED_COLUMNS} FROM bus_tasks WHERE id = ?1 /*lock*/"


def parse_offered(rows: Iterable[Row]) -> list[Offered]:
    """Read rows of `OFFERED_COLUMNS`, which are the fields in their order."""
    return [Offered(*row) for row in rows]


def parse_tasks(rows: Iterable[Row]) -> list[Task]:
    """Read rows of `COLUMNS`, which are the fields in their order."""
    return [Task(*row) for row in rows]


def parse_workers(rows: Iterable[Row]) -> list[Worker]:
    """Read rows of `WORKER_COLUMNS`, which are the fields in their order."""
    return [Worker(*row) for row in rows]


def find_offered(task: str) -> Script[Offered | None]:
    """Find a task that is not over as its worker is told of it, and keep it for this transaction."""
    rows = yield Statement(_OFFERED, (task,))
    return Offered(*rows[0]) if rows else None


def find_lease(task: str) -> Script[tuple[Lease, CallerId | None] | None]:
    """Find a task that is not over, and keep it for this transaction; with it, the caller whose worker has it."""
    rows = yield Statement(_LEASE, (task,))
    if not rows:
        return None
    *row, caller = rows[0]
    return Lease(*row), caller


def find_holder(task: str) -> Script[CallerId | None]:
    """Find the caller whose worker has a task; None if none has."""
    rows = yield Statement(_HOLDER, (task,))
    return rows[0][0] if rows else None


def find_task(task: str, *, lock: bool = True) -> Script[Task | None]:
    """Find a task that is not over."""
    suffix = " /*lock*/" if lock else ""
    rows = yield Statement(f"SELECT {COLUMNS} FROM bus_tasks WHERE id = ?1{suffix}", (task,))
    return parse_tasks(rows)[0] if rows else None


def find_archived(task: str) -> Script[EndedTask | None]:
    """Find a task that is over."""
    rows = yield Statement(f"SELECT {ENDED_COLUMNS} FROM bus_archive WHERE id = ?1", (task,))
    return EndedTask(*rows[0]) if rows else None


def find_worker(name: str) -> Script[Worker | None]:
    """Find a worker, and keep it for this transaction."""
    rows = yield Statement(f"SELECT {WORKER_COLUMNS} FROM bus_workers WHERE name = ?1 /*lock*/", (name,))
    return parse_workers(rows)[0] if rows else None


def note(
    task: str, at: float, kind: str, *, worker: Any = None, attempt: int = 0, detail: str | None = None
) -> Statement:
    """Write a line of a task's history."""
    return Statement(
        "INSERT INTO bus_events (seq, task, at, kind, worker, attempt, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        (next_number(at), task, at, kind, worker, attempt, detail),
        may_wait=True,
    )


def next_number(at: float) -> int:
    """Number a row: in the order of time, above what this process numbered before, and never as another process does.

    The database numbers nothing, so that rows can be copied to another one as they are.
    """
    global _numbered, _numbered_at  # noqa: PLW0603 (one process, one row of numbers)
    # Two threads could take the same number, but not for one task: a store is written by one at a time.
    number = _numbered + 1024
    # What is done in one transaction is done at one time.
    if at != _numbered_at:
        _numbered_at = at
        number = max(number, int(at * 1e6) * 1024 + _PROCESS)
    _numbered = number
    return number


def next_poll() -> PollId:
    """Name a poll, as no other process does."""
    return PollId(f"{_NAME}-{next(_polls)}")
