"""Sealed segments of the audit: runs of its oldest records that were removed, and their link to the chain.

A segment has the hash before its first record, the hash of its last, and the digest of all its records as JSON lines. So what is
left of the chain is verified from the last segment on, and a copy of removed records (`toolpost audit verify`, with
`audit.archive`) from the first record on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toolpost.base.ids import Digest
from toolpost.store.chain import BEGINNING
from toolpost.store.scripts import Script, Statement, change, marks

_NAMES: Final = ("first_seq", "last_seq", "previous", "hash", "digest", "sealed_at")


@dataclass(frozen=True, kw_only=True)
class AuditSegment:
    """A run of records that was removed."""

    first: int
    last: int
    previous: Digest
    """The hash of the record before the first."""
    hash: Digest
    """The hash of the last record."""
    digest: Digest
    """Over the lines of all records, as `audit/file.py` writes them."""
    sealed_at: float = 0.0


def find_segment_break(segments: Sequence[AuditSegment]) -> tuple[int, str] | None:
    """Return the first record whose segment does not continue the one before it, and why; None if all do."""
    seq, record_hash = 0, BEGINNING
    for segment in segments:
        if segment.first != seq + 1:
            return seq + 1, "it is missing: no sealed segment has it"
        if segment.previous != record_hash:
            return segment.first, "its sealed segment does not continue the previous one"
        seq, record_hash = segment.last, segment.hash
    return None


def read_segments() -> Script[list[AuditSegment]]:
    """Return all segments, oldest first."""
    rows = yield Statement(f"SELECT {', '.join(_NAMES)} FROM audit_segments ORDER BY first_seq")  # noqa: S608 - constants
    return [AuditSegment(**dict(zip(AuditSegment.__dataclass_fields__, row, strict=True))) for row in rows]


def adopt(segments: Sequence[AuditSegment]) -> Script[None]:
    """Begin an empty chain where these segments end: for a copy of another store."""
    last = segments[-1]
    moved = yield change("UPDATE audit_head SET seq = ?1, hash = ?2 WHERE seq = 0", (last.last, last.hash))
    if moved:
        for segment in segments:
            yield from insert_segment(segment, segment.sealed_at)


def insert_segment(segment: AuditSegment, sealed_at: float) -> Script[None]:
    """Add a segment, which must continue the last one."""
    values = (segment.first, segment.last, segment.previous, segment.hash, segment.digest, sealed_at)
    sql = f"INSERT INTO audit_segments ({', '.join(_NAMES)}) VALUES ({marks(len(_NAMES))})"  # noqa: S608 - constants
    yield Statement(sql, values)
