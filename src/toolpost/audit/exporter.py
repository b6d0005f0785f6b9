"""Delivers the audit to one destination, in the order of the chain, at least once each.

How far it came is in the store: after a crash it goes on from there, and what was delivered but not noted goes out a second time.
Among several gateways of a store one delivers at a time, and another takes over when it is gone.
"""

import logging
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio

from toolpost.audit.destinations import AuditDestination, NotDelivered
from toolpost.audit.spec import ExportSpec
from toolpost.base.events import event
from toolpost.base.ids import Digest
from toolpost.contracts import StoreUnavailable
from toolpost.metrics import Counter
from toolpost.store import NOW, Script, Statement, Store, change, lock_name, marks
from toolpost.store.audit_values import AuditFilter, AuditRecord
from toolpost.store.chain import BEGINNING

HOLD_S: Final = 20.0
"""How long a gateway may deliver without a sign of life, before another takes over; longer than a request may take."""
POLL_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0

_log = logging.getLogger("toolpost.export")


@dataclass(frozen=True)
class DeliveryCursor:
    """The last record that a destination has."""

    seq: int
    hash: Digest


class AuditExporter:
    """Delivers to one destination while `run` runs."""

    def __init__(self, store: Store, export: ExportSpec, destination: AuditDestination, failures: Counter) -> None:
        self.name = export.name
        self.waiting = 0
        """How many records the destination does not have yet, as far as is known."""
        self.problem: str | None = None
        """Why the last attempt to deliver failed; None if it did not."""
        self._store = store
        self._export = export
        self._destination = destination
        self._failures = failures
        self._holder = secrets.token_hex(8)

    async def run(self) -> None:
        """Deliver until cancelled."""
        try:
            while True:
                try:
                    await self._deliver_for_a_while()
                except Exception as error:  # noqa: BLE001 (a store that is away, or a record that cannot be read, ends no gateway)
                    self._failures.add(of=self.name)
                    event(_log, logging.ERROR, "audit export failed", export=self.name, exception=error)
                    await anyio.sleep(LONGEST_PAUSE_S)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(2), suppress(StoreUnavailable):
                await self._store.scripts.run(lambda: release(self.name, self._holder))
            with anyio.CancelScope(shield=True), anyio.move_on_after(2):
                await self._destination.aclose()

    async def _deliver_for_a_while(self) -> None:
        cursor = await self._hold()
        renew_at = anyio.current_time() + HOLD_S / 4
        while cursor is not None and anyio.current_time() < renew_at:
            if (reached := await self._deliver_after(cursor)) is None:
                await anyio.sleep(POLL_S)
            else:
                cursor = reached
        if cursor is None:
            await anyio.sleep(HOLD_S / 4)

    async def _hold(self) -> DeliveryCursor | None:
        # Shielded, as all its transactions: to be cancelled in the middle of one costs the store its connection.
        with anyio.CancelScope(shield=True):
            cursor = await self._store.scripts.run(lambda: hold(self.name, self._holder, self._export.begin))
        return cursor  # noqa: RET504 (mypy takes the scope for one that may swallow the return)

    async def _deliver_after(self, cursor: DeliveryCursor) -> DeliveryCursor | None:
        """Deliver the next records, and return the last; None if there are none, or they must not be delivered."""
        records = await self._store.audit.entries(AuditFilter(), after=cursor.seq, limit=self._export.batch)
        if not records:
            self.waiting = 0
            return None
        self.waiting = await self._store.audit.newest() - cursor.seq
        if (records[0].seq, records[0].previous) != (cursor.seq + 1, cursor.hash):
            # Delivered all the same, the receiver would take a forged chain for ours.
            self.problem = "The audit does not continue what was delivered: run `toolpost audit verify`."
            event(
                _log,
                logging.ERROR,
                "audit not exported: it does not continue the delivered entries",
                export=self.name,
                delivered=cursor.seq,
                hint="run `toolpost audit verify`",
            )
            self._failures.add(of=self.name)
            await anyio.sleep(LONGEST_PAUSE_S)
            return None
        await self._deliver(records)
        reached = DeliveryCursor(records[-1].seq, records[-1].hash)
        with anyio.CancelScope(shield=True):
            await self._store.scripts.run(lambda: advance(self.name, reached))
        self.waiting -= len(records)
        return reached

    async def _deliver(self, records: Sequence[AuditRecord]) -> None:
        pause_s, tries = 1.0, 0
        while True:
            try:
                await self._destination.deliver(records)
            except NotDelivered as error:
                tries += 1
                self.problem = str(error)
                self._failures.add(of=self.name)
                if tries in (1, 10) or tries % 100 == 0:
                    event(
                        _log,
                        logging.WARNING,
                        "audit not delivered",
                        export=self.name,
                        reason=str(error),
                        tries=tries,
                        waiting=self.waiting,
                    )
            else:
                self.problem = None
                if tries:
                    event(_log, logging.INFO, "audit delivered again", export=self.name, tries=tries)
                return
            await anyio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            # No other gateway should take over: the destination is the same for all.
            await self._hold()


def hold(name: str, holder: str, begin: str) -> Script[DeliveryCursor | None]:
    """Become, or stay, who delivers to a destination: returns how far that has the audit. None if another gateway does."""
    # Two gateways that start together must not both add the row.
    yield lock_name("audit export")
    ((now,),) = yield NOW
    rows = yield Statement("SELECT seq, hash, holder, held_until FROM export_cursors WHERE name = ?1", (name,))
    if not rows:
        seq, last = 0, BEGINNING
        if begin == "now":
            ((seq, last),) = yield Statement("SELECT seq, hash FROM audit_head")
        else:
            sealed = yield Statement("SELECT last_seq, hash FROM audit_segments ORDER BY last_seq DESC LIMIT 1")
            seq, last = sealed[0] if sealed else (seq, last)
        columns = "name, seq, hash, holder, held_until"
        sql = f"INSERT INTO export_cursors ({columns}) VALUES ({marks(5)})"  # noqa: S608 - constants
        yield Statement(sql, (name, seq, last, holder, now + HOLD_S))
        return DeliveryCursor(seq, Digest(last))
    ((seq, last, other, until),) = rows
    if other not in (None, holder) and until > now:
        return None
    yield Statement(
        "UPDATE export_cursors SET holder = ?1, held_until = ?2 WHERE name = ?3", (holder, now + HOLD_S, name)
    )
    return DeliveryCursor(seq, Digest(last))


def advance(name: str, cursor: DeliveryCursor) -> Script[None]:
    """Note what a destination has; never backwards."""
    yield change(
        "UPDATE export_cursors SET seq = ?1, hash = ?2 WHERE name = ?3 AND seq < ?1", (cursor.seq, cursor.hash, name)
    )


def release(name: str, holder: str) -> Script[None]:
    """Leave the destination to another gateway."""
    yield Statement("UPDATE export_cursors SET holder = NULL WHERE name = ?1 AND holder = ?2", (name, holder))


def read_floor(names: Sequence[str]) -> Script[int | None]:
    """Return the last record that all of these destinations have; None without destinations."""
    if not names:
        return None
    rows = yield Statement(f"SELECT seq FROM export_cursors WHERE name IN ({marks(len(names))})", tuple(names))  # noqa: S608 - constants
    return min((row[0] for row in rows), default=0) if len(rows) == len(names) else 0


def read_backlog(name: str) -> Script[tuple[int, str] | None]:
    """Return how many records a destination does not have, and when the oldest of them was made; None if it has all."""
    rows = yield Statement(
        "SELECT (SELECT max(seq) FROM audit) - exported.seq, waiting.at_utc FROM export_cursors exported"
        " JOIN audit waiting ON waiting.seq = (SELECT min(seq) FROM audit WHERE seq > exported.seq)"
        " WHERE exported.name = ?1",
        (name,),
    )
    return (int(rows[0][0]), str(rows[0][1])) if rows else None
