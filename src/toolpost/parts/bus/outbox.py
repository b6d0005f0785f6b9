"""The outbox of updates for the tracker that tasks come from.

An update is stored in the transaction of the change itself, and sent in order of each task until the tracker has taken it. A
tracker that fails is tried again later; no user of the bus waits for it.
"""

import logging
from dataclasses import dataclass
from typing import Final, Protocol

import anyio

from toolpost.base.events import event
from toolpost.contracts.errors import NotFound, ToolpostError
from toolpost.parts.bus.tasks import TaskId, Times, next_number
from toolpost.store import Store
from toolpost.store.scripts import NOW, Script, Statement

_log = logging.getLogger("toolpost.parts.bus")

OUTBOX: Final = "bus outbox"
"""The wake-up topic of new updates."""

CLAIM_S: Final = 60.0
"""How long one server may take to send an update before another sends it."""

RETRY_S: Final = 1.0
RETRY_LIMIT_S: Final = 600.0
LOOK_S: Final = 30.0

_POST: Final = "INSERT INTO bus_outbox (seq, task, kind, detail, tries, not_before) VALUES (?1, ?2, ?3, ?4, 0, 0)"
_NEXT: Final = """
SELECT seq, task, kind, detail, tries FROM bus_outbox o WHERE not_before <= ?1
AND NOT EXISTS (SELECT 1 FROM bus_outbox e WHERE e.task = o.task AND e.seq < o.seq)
ORDER BY seq LIMIT 20 /*skip locked*/
"""


@dataclass(frozen=True, kw_only=True)
class TrackerUpdate:
    """One update for the tracker."""

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

    async def tell(self, notice: TrackerUpdate) -> None:
        """Send an update; sending it twice does no harm. Raises `NotFound` for a task that the tracker no longer has."""
        ...


def make_update(task: str, kind: str, now: float, times: Times, *, detail: str | None = None) -> tuple[Statement, ...]:
    """Return the statement that stores an update; none without a tracker."""
    if not times.is_tracked:
        return ()
    return (Statement(_POST, (next_number(now), task, kind, detail)),)


class OutboxSender:
    """Sends updates to the tracker, one at a time."""

    def __init__(self, store: Store, tracker: Tracker) -> None:
        self._store = store
        self._tracker = tracker

    async def run(self) -> None:
        """Send updates until cancelled."""
        async with self._store.wakeups.open_listener(OUTBOX) as listener:
            while True:
                wait_s = LOOK_S
                try:
                    claimed = await self._store.scripts.run(_claim)
                    await self._tell_all(claimed)
                    wait_s = 0.0 if claimed else min(LOOK_S, await self._store.scripts.run(_until_due))
                except ToolpostError as error:
                    event(_log, logging.WARNING, "outbox not read", reason=error.message)
                with anyio.move_on_after(wait_s):
                    await listener.wait()

    async def _tell_all(self, claimed: list[TrackerUpdate]) -> None:
        left = list(claimed)
        try:
            while left:
                await self._tell(left[0])
                left.pop(0)
        finally:
            if left:
                # Another server need not wait until this claim has run out.
                with anyio.CancelScope(shield=True):
                    await self._store.scripts.run(lambda: _release(left))

    async def _tell(self, notice: TrackerUpdate) -> None:
        try:
            await self._tracker.tell(notice)
        except NotFound as error:
            event(_log, logging.WARNING, "not told to the tracker", task=notice.task, reason=error.message)
        except ToolpostError as error:
            wait_s = min(RETRY_LIMIT_S, RETRY_S * 2.0 ** min(notice.tries, 20))
            event(_log, logging.WARNING, "tracker failed", task=notice.task, reason=error.message, againInS=wait_s)
            await self._store.scripts.run(lambda: _postpone(notice, wait_s))
            return
        await self._store.scripts.run(lambda: _delete(notice))


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


def _delete(notice: TrackerUpdate) -> Script[None]:
    yield Statement("DELETE FROM bus_outbox WHERE seq = ?1", (notice.seq,))


def _release(notices: list[TrackerUpdate]) -> Script[None]:
    for notice in notices:
        yield Statement("UPDATE bus_outbox SET not_before = 0 WHERE seq = ?1", (notice.seq,))


def _postpone(notice: TrackerUpdate, wait_s: float) -> Script[None]:
    ((now,),) = yield NOW
    yield Statement(
        "UPDATE bus_outbox SET tries = tries + 1, not_before = ?2 WHERE seq = ?1", (notice.seq, now + wait_s)
    )


def _until_due() -> Script[float]:
    ((now,),) = yield NOW
    rows = yield Statement("SELECT min(not_before) FROM bus_outbox")
    due = rows[0][0]
    return LOOK_S if due is None else max(0.05, float(due) - now)
