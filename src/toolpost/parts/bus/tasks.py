"""Tasks and workers as values, as rows, and the policy by which they are handled.

`LeasedTask`, `WorkerTask` and `BusTask` are the same row read with more and more columns: the steps of a worker run most often,
and read no more than they need.
"""

import itertools
import secrets
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, NewType

import msgspec

from toolpost import CallerId
from toolpost.base import Json
from toolpost.parts.bus.settings import BUS
from toolpost.store import Row, Script, Statement

TaskId = NewType("TaskId", str)
WorkerName = NewType("WorkerName", str)
LeaseToken = NewType("LeaseToken", str)
PollId = NewType("PollId", str)

_PROCESS_NUMBER: Final = secrets.randbelow(1024)
_POLL_PREFIX: Final = secrets.token_hex(6)
_poll_numbers: Final = itertools.count(1)
_last_seq = 0
_last_seq_at = 0.0

State = Literal["waiting", "queued", "offered", "running", "done", "blocked", "dead", "cancelled"]

PRIORITIES: Final = range(5)
"""0 is the most urgent."""
DEFAULT_PRIORITY: Final = 2

# In the order of the fields of `LeasedTask`, `WorkerTask`, `BusTask` and `EndedTask`.
LEASE_COLUMNS: Final = "id, state, attempt, leases, worker, token, expires_at, changed_at"
WORKER_TASK_COLUMNS: Final = f"{LEASE_COLUMNS}, is_fetched, priority, payload"
TASK_COLUMNS: Final = f"{WORKER_TASK_COLUMNS}, dedupe_key, submitted_by, submitted_at, rank, not_before, reason, result"
ENDED_TASK_COLUMNS: Final = f"{TASK_COLUMNS}, ended_by"


@dataclass(frozen=True, kw_only=True)
class BusPolicy:
    """Durations of leases and pauses in seconds, the number of attempts, and what scripts must know of their process."""

    offer_s: float = 15.0
    """How long an offered task may stay unacknowledged."""
    lease_s: float = BUS.default.lease_s
    """The lease of a running task whose worker's process renews it."""
    lease_without_renewal_s: float = BUS.default.lease_without_renewal_s
    """The lease of a running task that is not renewed."""
    retry_s: float = 5.0
    """Delay before the second attempt; twice that before the third."""
    retry_limit_s: float = 600.0
    attempts: int = BUS.default.attempts
    """How often a task is started before it is dead."""
    priority_s: float = 600.0
    """How long a task must wait to come before a new one of the next higher priority."""
    sweep_s: float = 5.0
    """The longest time between two sweeps: another server may have made a lease that expires before all of this one."""
    present_s: float = 60.0
    """How long after its last poll a worker still gets offers."""
    forget_s: float = 3_600.0
    """How long after its last poll a worker is deleted."""
    is_tracked: bool = False
    """Whether updates for a tracker are stored."""
    polls: Container[str] = ()
    """Polls that wait in this process: a task that is offered to one counts as fetched."""


class LeasedTask(msgspec.Struct, frozen=True, gc=False):
    """A task as far as its lease goes: state, worker, token and expiry."""

    id: TaskId
    state: State
    attempt: int
    """How often it was acknowledged since it was submitted, or restored from the archive."""
    leases: int
    """How often it was offered."""
    worker: WorkerName | None
    token: LeaseToken | None
    expires_at: float | None
    changed_at: float


class WorkerTask(LeasedTask, frozen=True, gc=False):
    """A task with the offer for its worker."""

    is_fetched: int
    """1 once the worker has the offer: handed to its poll in memory, or read by one. An offer with 0 may go to another worker."""
    priority: int
    payload: str | None

    @property
    def payload_json(self) -> Json:
        """The payload that was submitted, None if there is none."""
        return None if self.payload is None else msgspec.json.decode(self.payload)


class BusTask(WorkerTask, frozen=True, gc=False):
    """All columns of a task."""

    dedupe_key: str | None
    submitted_by: str
    submitted_at: float
    rank: float
    not_before: float
    reason: str | None
    result: str | None

    @property
    def result_json(self) -> Json:
        """The result that its worker sent, None if there is none."""
        return None if self.result is None else msgspec.json.decode(self.result)


class EndedTask(BusTask, frozen=True, gc=False):
    """A task in `bus_archive`."""

    ended_by: CallerId | None
    """The caller whose worker ended it; None if an operator or an expired lease did, or a version that did not store it."""


class PollingWorker(msgspec.Struct, frozen=True, gc=False):
    """A worker with the answers of its polls."""

    name: WorkerName
    caller: CallerId | None
    """The caller that registered it, and alone may use it; None if a server of an older version registered it."""
    task: TaskId | None
    poll: PollId | None
    poll_until: float | None
    resets: int
    """How often it was reset, by its caller or an administrator; a poll that began before a reset ends with it."""

    def is_polling(self, now: float) -> bool:
        return self.poll is not None and (self.poll_until or 0) > now


class Worker(PollingWorker, frozen=True, gc=False):
    """All columns of a worker. It has one task at a time."""

    owner: str
    """The registration key, not the owner (that is `caller`): who registers again with the same key is the same worker."""
    seen_at: float
    idle_since: float


POLLING_COLUMNS: Final = "name, caller, task, poll, poll_until, resets"
WORKER_COLUMNS: Final = f"{POLLING_COLUMNS}, owner, seen_at, idle_since"


# The caller whose worker has a task. A worker is never deleted while it has one, so `bus_tasks` need not repeat its caller.
HOLDER: Final = "(SELECT w.caller FROM bus_workers w WHERE w.name = bus_tasks.worker)"
_LEASE: Final = f"SELECT {LEASE_COLUMNS}, {HOLDER} FROM bus_tasks WHERE id = ?1 /*lock*/"
_HOLDER: Final = f"SELECT {HOLDER} FROM bus_tasks WHERE id = ?1"
_OFFERED: Final = f"SELECT {WORKER_TASK_COLUMNS} FROM bus_tasks WHERE id = ?1 /*lock*/"


def parse_worker_tasks(rows: Iterable[Row]) -> list[WorkerTask]:
    """Read rows of `WORKER_TASK_COLUMNS`."""
    return [WorkerTask(*row) for row in rows]


def parse_tasks(rows: Iterable[Row]) -> list[BusTask]:
    """Read rows of `TASK_COLUMNS`."""
    return [BusTask(*row) for row in rows]


def parse_workers(rows: Iterable[Row]) -> list[Worker]:
    """Read rows of `WORKER_COLUMNS`."""
    return [Worker(*row) for row in rows]


def find_worker_task(task: str) -> Script[WorkerTask | None]:
    """Find a task that has not ended, and lock its row."""
    rows = yield Statement(_OFFERED, (task,))
    return WorkerTask(*rows[0]) if rows else None


def find_lease(task: str) -> Script[tuple[LeasedTask, CallerId | None] | None]:
    """Find a task that has not ended, with the caller whose worker has it, and lock its row."""
    rows = yield Statement(_LEASE, (task,))
    if not rows:
        return None
    *row, caller = rows[0]
    return LeasedTask(*row), caller


def find_holder(task: str) -> Script[CallerId | None]:
    """Find the caller whose worker has a task; None if no worker has it."""
    rows = yield Statement(_HOLDER, (task,))
    return rows[0][0] if rows else None


def find_task(task: str, *, lock: bool = True) -> Script[BusTask | None]:
    """Find a task that has not ended."""
    suffix = " /*lock*/" if lock else ""
    rows = yield Statement(f"SELECT {TASK_COLUMNS} FROM bus_tasks WHERE id = ?1{suffix}", (task,))
    return parse_tasks(rows)[0] if rows else None


def find_archived(task: str) -> Script[EndedTask | None]:
    """Find a task that has ended."""
    rows = yield Statement(f"SELECT {ENDED_TASK_COLUMNS} FROM bus_archive WHERE id = ?1", (task,))
    return EndedTask(*rows[0]) if rows else None


def find_worker(name: str) -> Script[Worker | None]:
    """Find a worker, and lock its row."""
    rows = yield Statement(f"SELECT {WORKER_COLUMNS} FROM bus_workers WHERE name = ?1 /*lock*/", (name,))
    return parse_workers(rows)[0] if rows else None


def insert_event(
    task: str, at: float, kind: str, *, worker: Any = None, attempt: int = 0, detail: str | None = None
) -> Statement:
    """Return the statement that adds an event to a task's history."""
    return Statement(
        "INSERT INTO bus_events (seq, task, at, kind, worker, attempt, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        (next_seq(at), task, at, kind, worker, attempt, detail),
        may_be_deferred=True,
    )


def next_seq(at: float) -> int:
    """Return a `seq` for a row: ordered by time, increasing within this process, and different from those of other processes.

    It is microseconds times 1,024 plus a number of this process. No sequence of the database is used, so that rows can be copied
    to another store as they are.
    """
    global _last_seq, _last_seq_at  # noqa: PLW0603 (one process, one sequence)
    # Two threads could take the same number, but not for one task: only one thread at a time writes to a store.
    number = _last_seq + 1024
    # All rows of one transaction have the same time, so that only the first of them needs to look at it.
    if at != _last_seq_at:
        _last_seq_at = at
        number = max(number, int(at * 1e6) * 1024 + _PROCESS_NUMBER)
    _last_seq = number
    return number


def new_poll_id() -> PollId:
    """Return an id that is unique among all processes of the store."""
    return PollId(f"{_POLL_PREFIX}-{next(_poll_numbers)}")
