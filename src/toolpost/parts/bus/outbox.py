"""The outbox of updates for the tracker that tasks come from.

An update is stored in the transaction of the change itself, so that none is lost with the process. A background task sends the
updates of each task in order, and retries with backoff while the tracker fails; no operation of the bus waits for the tracker.
"""

import logging
from dataclasses import dataclass
from typing import Final, Protocol

import anyio

from toolpost import NotFound, ToolpostError
from toolpost.base import event
from toolpost.parts.bus.tasks import BusPolicy, TaskId, next_seq
from toolpost.store import NOW, Script, Statement, Store

_log = logging.getLogger("toolpost.parts.bus")

OUTBOX: Final = "bus outbox"
"""The wake-up topic of new updates."""

CLAIM_S: Final = 60.0
"""How long one server may take to send an update before another sends it."""

RETRY_S: Final = 1.0
RETRY_LIMIT_S: Final = 600.0
READ_INTERVAL_S: Final = 30.0
"""How often the outbox is read without a wake-up."""

_INSERT: Final = "INSERT INTO bus_outbox (seq, task, kind, detail, tries, not_before) VALUES (?1, ?2, ?3, ?4, 0, 0)"
_NEXT: Final = """
SELECT seq, task, kind, detail, tries FROM bus_outbox o WHERE not_before <= ?1
AND NOT EXISTS (SELECT 1 FROM bus_outbox e WHERE e.task = o.task AND e.seq < o.seq)
ORDER BY seq LIMIT 20 /*skip locked*/
"""


@dataclass(frozen=True, kw_only=True)
class TrackerUpdate:
    seq: int
    task: TaskId
    kind: str
    """`begun`, `retried`, or the state in which a task ended: `done`, `blocked`, `dead`, `cancelled`."""
    detail: str | None
    tries: int


class Tracker(Protocol):
    """The issue tracker that tasks come from."""

    async def check(self, task: TaskId) -> None:
        """Raise `NotFound` for a task that the tracker does not have."""
        ...

    async def send(self, update: TrackerUpdate) -> None:
        """Send an update; sending it twice does no harm. Raises `NotFound` for a task that the tracker no longer has."""
        ...


def make_update(
    task: str, kind: str, now: float, policy: BusPolicy, *, detail: str | None = None
) -> tuple[Statement, ...]:
    """Return the statement that stores an update; none without a tracker."""
    if not policy.is_tracked:
        return ()
    return (Statement(_INSERT, (next_seq(now), task, kind, detail)),)


class OutboxSender:
    """Sends updates to the tracker, one at a time."""

    def __init__(self, store: Store, tracker: Tracker) -> None:
        self._store = store
        self._tracker = tracker

    async def run(self) -> None:
        """Send updates until cancelled."""
        async with self._store.wakeups.open_listener(OUTBOX) as listener:
            while True:
                wait_s = READ_INTERVAL_S
                try:
                    claimed = await self._store.scripts.run(_claim)
                    await self._send_all(claimed)
                    wait_s = 0.0 if claimed else min(READ_INTERVAL_S, await self._store.scripts.run(_until_due))
                except ToolpostError as error:
                    event(_log, logging.WARNING, "outbox not read", reason=error.message)
                with anyio.move_on_after(wait_s):
                    await listener.wait()

    async def _send_all(self, claimed: list[TrackerUpdate]) -> None:
        left = list(claimed)
        try:
            while left:
                await self._send(left[0])
                left.pop(0)
        finally:
            if left:
                # So that another server need not wait until this claim expires.
                with anyio.CancelScope(shield=True):
                    await self._store.scripts.run(lambda: _release(left))

    async def _send(self, update: TrackerUpdate) -> None:
        try:
            await self._tracker.send(update)
        except NotFound as error:
            event(_log, logging.WARNING, "not told to the tracker", task=update.task, reason=error.message)
        except ToolpostError as error:
            wait_s = min(RETRY_LIMIT_S, RETRY_S * 2.0 ** min(update.tries, 20))
            event(_log, logging.WARNING, "tracker failed", task=update.task, reason=error.message, againInS=wait_s)
            await self._store.scripts.run(lambda: _postpone(update, wait_s))
            return
        await self._store.scripts.run(lambda: _delete(update))


def _claim() -> Script[list[TrackerUpdate]]:
    """Claim the first due update of each task, so that no other server sends it at the same time."""
    ((now,),) = yield NOW
    rows = yield Statement(_NEXT, (now,))
    for row in rows:
        yield Statement("UPDATE bus_outbox SET not_before = ?2 WHERE seq = ?1", (row[0], now + CLAIM_S))
    return [
        TrackerUpdate(seq=seq, task=TaskId(task), kind=kind, detail=d, tries=tries)
        for seq, task, kind, d, tries in rows
    ]


def _delete(update: TrackerUpdate) -> Script[None]:
    yield Statement("DELETE FROM bus_outbox WHERE seq = ?1", (update.seq,))


def _release(updates: list[TrackerUpdate]) -> Script[None]:
    for update in updates:
        yield Statement("UPDATE bus_outbox SET not_before = 0 WHERE seq = ?1", (update.seq,))


def _postpone(update: TrackerUpdate, wait_s: float) -> Script[None]:
    ((now,),) = yield NOW
    yield Statement(
        "UPDATE bus_outbox SET tries = tries + 1, not_before = ?2 WHERE seq = ?1", (update.seq, now + wait_s)
    )


def _until_due() -> Script[float]:
    ((now,),) = yield NOW
    rows = yield Statement("SELECT min(not_before) FROM bus_outbox")
    due = rows[0][0]
    return READ_INTERVAL_S if due is None else max(0.05, float(due) - now)
