"""Arguments and results of calls that were selected for review, kept for a limited time; the audit has their digests."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from toolpost.store.rows import Table
from toolpost.store.scripts import NOW, Script, Statement, TableAccess, change, marks, reads, writes


@dataclass(frozen=True, kw_only=True)
class CallContent:
    """The contents of a call, and the proof that it was selected by chance."""

    call_id: str
    epoch: str
    """The input of the random function: one for each hour."""
    sample: float
    """The part of all calls that was selected at that time."""
    proof: str
    """Hexadecimal, as `vrf_verify` takes it."""
    public_key: str
    arguments: str
    """JSON without secrets, perhaps cut."""
    result: str | None = None
    """JSON likewise; None for a call that has not ended, or whose gateway was killed."""


_NAMES: Final = tuple(field.name for field in fields(CallContent))

_COLUMNS: Final = ", ".join(_NAMES)
_INSERT: Final = (
    f"INSERT INTO audit_contents (kept_at, {_COLUMNS}) VALUES ({marks(len(_NAMES) + 1)}) ON CONFLICT DO NOTHING"  # noqa: S608 - constants
)
_SELECT: Final = f"SELECT {_COLUMNS} FROM audit_contents WHERE"  # noqa: S608 - constants

AUDIT_CONTENTS: Final = Table(name="audit_contents", key=("call_id",), columns=("kept_at", *_NAMES))


class AuditContents(TableAccess):
    """The stored contents of calls that were selected for review."""

    @staticmethod
    def input_of(epoch: str) -> bytes:
        """Return the input of the random function for an hour of UTC, such as `2026-11-17T18`."""
        return f"toolpost-audit-sample-v1\n{epoch}".encode()

    # Short: committed with others, and by SQLite on the event loop, which costs less than the thread of its writer.
    @writes(durable=False, is_short=True)
    def insert(
        self, call_id: str, *, epoch: str, sample: float, proof: str, public_key: str, arguments: str
    ) -> Script[None]:
        """Store what is known when a call begins: fields of `CallContent`."""
        ((now,),) = yield NOW
        yield Statement(_INSERT, (now, call_id, epoch, sample, proof, public_key, arguments, None))

    @writes(durable=False, is_short=True)
    def set_result(self, call_id: str, result: str) -> Script[None]:
        """Add how a call ended."""
        yield Statement("UPDATE audit_contents SET result = ?1 WHERE call_id = ?2", (result, call_id))

    @reads
    def find(self, call_ids: Sequence[str]) -> Script[dict[str, CallContent]]:
        """Return what is stored of these calls, by call id."""
        if not call_ids:
            return {}
        rows = yield Statement(f"{_SELECT} call_id IN ({marks(len(call_ids))})", tuple(call_ids))
        return {row[0]: CallContent(**dict(zip(_NAMES, row, strict=True))) for row in rows}

    @writes(durable=False)
    def prune(self, *, keep_s: float, keep: int) -> Script[int]:
        """Remove contents that are older than `keep_s`, and the oldest of more than `keep`; returns how many."""
        ((now,),) = yield NOW
        old = yield change("DELETE FROM audit_contents WHERE kept_at < ?1", (now - keep_s,))
        rows = yield Statement("SELECT kept_at FROM audit_contents ORDER BY kept_at DESC LIMIT 1 OFFSET ?1", (keep,))
        more = []
        if rows:
            more = yield change("DELETE FROM audit_contents WHERE kept_at <= ?1", (rows[0][0],))
        return len(old) + len(more)
