"""Removes the oldest records of the audit, in sealed segments: the rest stays verifiable (`store/segments.py`)."""

import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from toolpost.audit.archive import digest_lines, write_archive
from toolpost.audit.exporter import read_floor
from toolpost.audit.file import record_line, row_of
from toolpost.audit.spec import RetentionLimits
from toolpost.base import format_time
from toolpost.base.events import event
from toolpost.base.ids import Digest
from toolpost.store import NOW, Script, Statement, Store, change, lock_name
from toolpost.store.audit_values import AuditFilter, AuditRecord
from toolpost.store.chain import BEGINNING, ChainVerifier
from toolpost.store.segments import AuditSegment, insert_segment, read_segments

SEGMENT: Final = 5_000
"""Records in a segment, at most: they are removed in one transaction, which calls have to wait for."""
FIRST_S: Final = 5.0
EVERY_S: Final = 300.0
_SAMPLED: Final = 1_000

_log = logging.getLogger("toolpost.export")


async def run_retention(store: Store, limits: RetentionLimits, exports: Sequence[str]) -> None:
    """Remove what is older than wanted, again and again, until cancelled."""
    await anyio.sleep(FIRST_S)
    while True:
        try:
            await apply_retention(store, limits, exports)
        except OSError as error:
            event(_log, logging.ERROR, "audit not removed: its archive cannot be written", reason=str(error))
        except Exception as error:  # noqa: BLE001 (a store that is away ends no gateway)
            event(_log, logging.ERROR, "audit not removed", exception=error)
        await anyio.sleep(EVERY_S)


async def apply_retention(store: Store, limits: RetentionLimits, exports: Sequence[str]) -> int:
    """Seal and remove what is older than wanted and was delivered everywhere; returns how many records. Raises `OSError`."""
    removed = 0
    while (segment_end := await _find_end(store, limits, exports)) is not None:
        segments = await store.audit.segments()
        first, previous = (segments[-1].last + 1, segments[-1].hash) if segments else (1, BEGINNING)
        last = min(segment_end, first + SEGMENT - 1)
        records = await store.audit.entries(AuditFilter(), after=first - 1, limit=last - first + 1)
        made = await anyio.to_thread.run_sync(_make_segment, records, first, previous)
        if isinstance(made, str):
            # What was tampered with is evidence: it stays.
            event(_log, logging.ERROR, "audit not removed: the chain is broken", reason=made)
            return removed
        segment, lines = made
        if limits.archive is not None:
            await anyio.to_thread.run_sync(write_archive, limits.archive, segment, lines)
        if await store.scripts.run(partial(seal, segment)):
            removed += len(records)
    if removed:
        event(_log, logging.INFO, "audit entries sealed and removed", entries=removed)
    return removed


def seal(segment: AuditSegment) -> Script[bool]:
    """Remove the records of a segment, which must be the oldest; False, with nothing done, if another process was first."""
    yield lock_name("audit segments")
    segments = yield from read_segments()
    if segment.first != (segments[-1].last if segments else 0) + 1:
        return False
    ((now,),) = yield NOW
    yield from insert_segment(segment, now)
    yield Statement(
        "DELETE FROM audit_contents WHERE call_id IN (SELECT call_id FROM audit WHERE seq <= ?1)", (segment.last,)
    )
    yield change("DELETE FROM audit WHERE seq <= ?1", (segment.last,))
    return True


def _make_segment(
    records: Sequence[AuditRecord], first: int, previous: Digest
) -> tuple[AuditSegment, list[bytes]] | str:
    verifier = ChainVerifier(first - 1, previous)
    rows = [row_of(record) for record in records]
    if (verdict := verifier.check_rows(rows)) is not None:
        return f"entry {verdict.broken_seq}: {verdict.reason}"
    lines = [record_line(row) for row in rows]
    segment = AuditSegment(
        first=first, last=verifier.seq, previous=records[0].previous, hash=verifier.hash, digest=digest_lines(lines)
    )
    return segment, lines


async def _find_end(store: Store, limits: RetentionLimits, exports: Sequence[str]) -> int | None:
    """Return the last record that may be removed, None if none may."""
    before = None
    if limits.days is not None:
        before = format_time(time.time() - limits.days * 86_400)
    first, end = await store.scripts.read(lambda: _find_expired(before))
    newest = await store.audit.newest()
    if limits.mb is not None and newest >= first:
        sample = await store.audit.entries(AuditFilter(), after=first - 1, limit=_SAMPLED)
        size = sum(len(record_line(row_of(record))) for record in sample) / max(1, len(sample))
        end = max(end, newest - int(limits.mb * 1_000_000 / max(1.0, size)))
    floor = await store.scripts.read(lambda: read_floor(exports))
    # The newest record stays: the chain is continued from it.
    end = min(end, newest - 1, *(() if floor is None else (floor,)))
    return end if end >= first else None


def _find_expired(before: str | None) -> Script[tuple[int, int]]:
    """Return the seq of the first record, and the last of those at the beginning that are older than this."""
    rows = yield Statement("SELECT max(last_seq) FROM audit_segments")
    first = (rows[0][0] or 0) + 1
    if before is None:
        return first, first - 1
    # Not by the minimum of all newer ones: a clock that jumped must not keep, or remove, what lies between.
    rows = yield Statement("SELECT seq FROM audit WHERE at_utc >= ?1 ORDER BY seq LIMIT 1", (before,))
    if rows:
        return first, rows[0][0] - 1
    rows = yield Statement("SELECT seq FROM audit_head")
    return first, rows[0][0]
