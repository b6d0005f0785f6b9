"""The audit log: one record for every call, chained by hashes (`store/chain.py`), in the tables `audit` and `audit_head`."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import anyio.to_thread

from toolpost.base.ids import Digest
from toolpost.contracts.errors import GatewayError
from toolpost.store.audit_values import (
    AuditEntry,
    AuditFilter,
    AuditRecord,
    AuditVerdict,
    CallSample,
    OutcomeCount,
    Usage,
)
from toolpost.store.batches import Batches
from toolpost.store.call_journal import CallJournal, Slot
from toolpost.store.chain import BEGINNING, COLUMNS, ChainVerifier, Row, Values, link_entries, record_of, values_of
from toolpost.store.late_entries import LateEntries
from toolpost.store.scripts import Many, Script, Scripts, Statement, glob, marks
from toolpost.store.segments import AuditSegment, find_segment_break, read_segments

CHUNK: Final = 1_000
"""How many records are verified at a time: other tasks run between two chunks."""

SAMPLE: Final = 5_000
"""How many calls `sample` returns, about: enough for a 99th percentile, and read in some milliseconds."""

COUNTED: Final = 20_000
"""How many of the newest records `count_outcomes` counts."""

USAGE_LIMIT: Final = 200_000
"""How many of the newest records `usage` looks at."""

_IS_FAILED: Final = "CASE WHEN outcome IN ('error', 'refused', 'lost') THEN 1 ELSE 0 END"
_FAILED: Final = f"sum({_IS_FAILED})"
_SELECT: Final = f"SELECT {', '.join(COLUMNS)} FROM audit WHERE"  # noqa: S608 - constants
_INSERT: Final = f"INSERT INTO audit ({', '.join(COLUMNS)}) VALUES ({marks(len(COLUMNS))})"  # noqa: S608 - constants
# Cast: in a SQLite file that was tampered with, the head may have values of any type.
_HEAD: Final = "SELECT CAST(seq AS BIGINT), CAST(hash AS TEXT) FROM audit_head"
_CONDITIONS: Final = {
    "tool": "tool GLOB ?{}",
    "caller": "caller = ?{}",
    "code": "code = ?{}",
    "outcome": "outcome = ?{}",
    "since": "at_utc >= ?{}",
    "until": "at_utc < ?{}",
    "call_id": "call_id = ?{}",
    "trace_id": "trace_id = ?{}",
    "before": "seq < ?{}",
}
_LOWEST: Final = -(2**63)
_HIGHEST: Final = 2**63 - 1

Head = tuple[int, Digest]
Write = Callable[[Sequence[Values]], Awaitable[None]]


class AuditLog:
    """The record of every call. Entries are added; none is ever changed."""

    def __init__(self, scripts: Scripts, write: Write, call_journal: CallJournal | None = None) -> None:
        """`write` commits a batch of entries, all of them or none; `call_journal` has those in flight."""
        self._scripts = scripts
        self.call_journal = call_journal
        self._batches = Batches(write)
        self._late = LateEntries(lambda entries: scripts.run(lambda: append_missing(entries)))

    @property
    def commits(self) -> int:
        """How many batches were committed."""
        return self._batches.commits

    def append(self, entry: AuditEntry, *, is_only_call: bool = False) -> Awaitable[None]:  # noqa: ARG002 - of use to a journal
        """Record an entry; done when it is committed. To be awaited at once, on the store's event loop.

        `is_only_call` says that no other call is in flight, so that a store with a journal may acknowledge the entry once it
        is journaled. A caller that is cancelled while it waits leaves the entry behind: it is committed all the same.
        """
        try:
            return self._batches.add((values_of(entry),))
        except GatewayError as error:
            refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            refused.set_exception(error)
            return refused

    def append_late(self, entry: AuditEntry, slot: Slot | None = None) -> None:
        """Record an entry whose `append` has failed as soon as the store takes it; then its call leaves the journal of calls."""
        try:
            values_of(entry)
        except GatewayError:
            return  # malformed, and never taken
        journal = self.call_journal
        if journal is None or slot is None:
            self._late.add(entry)
        else:
            self._late.add(entry, partial(journal.leave, slot))

    def try_journal(self, entry: AuditEntry) -> bool:  # noqa: ARG002 - of use to a journal
        """Record an entry without waiting, as `append` may do for an only call; False, with nothing done, if it cannot be."""
        return False

    async def flush(self) -> None:
        """Wait until entries that were acknowledged can be read."""

    async def entries(self, matching: AuditFilter, *, after: int = 0, limit: int) -> list[AuditRecord]:
        """Return the records past the seq `after` that match, oldest first, at most `limit`."""
        await self.flush()
        rows = await self._scripts.read(lambda: _find(matching, after, limit))
        return [record_of(row) for row in rows]

    async def sample(self, since: str, *, caller: str | None = None) -> CallSample:
        """Return the calls since a time; of more than `SAMPLE` about that many, evenly over the time."""
        await self.flush()
        total, rows = await self._scripts.read(lambda: _read_sample(since, caller))
        return CallSample(calls=[*map(tuple, rows)], total=total)

    async def count_outcomes(self, since: str) -> list[OutcomeCount]:
        """Count the calls since a time, by tool and outcome; of more than `COUNTED` records the newest."""
        after = await self.newest() - COUNTED
        rows = await self._scripts.read(lambda: _count_outcomes(since, after))
        return [
            OutcomeCount(source=source, tool=tool, code=code, is_failed=bool(is_failed), calls=int(calls))
            for source, tool, code, is_failed, calls in rows
        ]

    async def usage(self, since: str, *, caller: str | None = None) -> tuple[list[Usage], bool]:
        """Return how much each caller has called since a time, the busiest first, and whether there was more to look at.

        Of more than `USAGE_LIMIT` calls, the newest are looked at.
        """
        after = await self.newest() - USAGE_LIMIT
        rows, is_cut = await self._scripts.read(lambda: _read_usage(since, caller, after))
        found = [
            Usage(caller=name, calls=int(calls), failed=int(failed), mean_ms=float(mean), last_at=last)
            for name, calls, failed, mean, last in rows
        ]
        return found, is_cut

    async def newest(self) -> int:
        """Return the seq of the newest record, 0 if there is none: a cursor that also passes records which do not match."""
        await self.flush()
        head = await self._scripts.read(_read_head)
        return head[0] if head else 0

    async def segments(self) -> list[AuditSegment]:
        """Return the segments of records that were removed, oldest first."""
        return await self._scripts.read(read_segments)

    async def verify(self, *, has_segments: bool = True) -> AuditVerdict:
        """Verify the chain from its first record, or its sealed segments, to its head, up to the first break.

        Entries that are appended after it started are not verified. A file of an older version has no table of segments.
        """
        await self.flush()
        while True:
            segments = await self.segments() if has_segments else []
            head = await self._scripts.read(_read_head)
            verdict = await self._verify(segments, head)
            # Records that were sealed after that are missing in what was read.
            if verdict.is_intact or not has_segments or segments == await self.segments():
                return verdict

    async def _verify(self, segments: Sequence[AuditSegment], head: Head | None) -> AuditVerdict:
        if (found := find_segment_break(segments)) is not None:
            seq, reason = found
            return AuditVerdict(
                checked=seq - 1, head=BEGINNING, sealed=segments[-1].last, broken_seq=seq, reason=reason
            )
        end = head[0] if head else _HIGHEST
        verifier = ChainVerifier(segments[-1].last, segments[-1].hash) if segments else ChainVerifier()
        start = _LOWEST
        while rows := await self._scripts.read(partial(_read_chunk, start, end)):
            if verdict := await anyio.to_thread.run_sync(verifier.check_rows, rows):
                return verdict
            start = verifier.seq + 1
        verdict = verifier.check_head(head)
        if verdict.is_intact and (stray := await self._scripts.read(_find_past_head)):
            return verifier.make_break(stray, "it was inserted: it is past the head")
        return verdict

    async def aclose(self) -> None:
        """Commit what is queued, and refuse new entries."""
        await self._batches.aclose()
        await self._late.aclose()
        if self.call_journal is not None:
            self.call_journal.close()


def append_entries(entries: Sequence[Values]) -> Script[None]:
    """Link entries to the chain and insert them. Not repeatable: after a commit it would add them a second time."""
    # Read within the transaction: another process may have written since the last batch.
    rows = yield Statement(f"{_HEAD} /*lock*/")
    if not rows:
        raise GatewayError(
            "the head of the audit chain is missing", hint="run `toolpost audit verify` to list the rest"
        )
    seq, previous = rows[0]
    records = link_entries(entries, seq=seq, previous=previous)
    yield Many(_INSERT, records)
    yield Statement("UPDATE audit_head SET seq = ?1, hash = ?2", (records[-1][0], records[-1][-1]))


def record_entries(entries: Sequence[AuditEntry]) -> Script[None]:
    """Append entries in the transaction of another change: both are committed, or neither. Not repeatable either."""
    yield from append_entries([values_of(entry) for entry in entries])


def append_missing(entries: Sequence[AuditEntry]) -> Script[int]:
    """Append the entries of those calls that the audit does not have, and return how many; may be repeated."""
    # The lock first: what a killed process had sent to the database is committed by now, or finds the head moved.
    yield Statement(f"{_HEAD} /*lock*/")
    missing: dict[str, Values] = {}
    for entry in entries:
        if not (yield Statement("SELECT 1 FROM audit WHERE call_id = ?1", (entry.call_id,))):
            missing[entry.call_id] = values_of(entry)
    if missing:
        yield from append_entries(list(missing.values()))
    return len(missing)


def _read_head() -> Script[Head | None]:
    rows = yield Statement(_HEAD)
    return (rows[0][0], rows[0][1]) if rows else None


def _find(matching: AuditFilter, after: int, limit: int) -> Script[list[Row]]:
    given = {name: value for name in _CONDITIONS if (value := getattr(matching, name)) is not None}
    if "tool" in given:
        given["tool"] = glob(given["tool"])
    conditions = [_CONDITIONS[name].format(number) for number, name in enumerate(given, start=2)]
    if matching.last is None:
        order = "ASC"
    else:
        order, limit = "DESC", min(limit, matching.last)
    if matching.has_contents:
        conditions.append("call_id IN (SELECT call_id FROM audit_contents)")
    where = " AND ".join(("seq > ?1", *conditions))
    values: tuple[Any, ...] = (after, *given.values())
    rows = yield Statement(f"{_SELECT} {where} ORDER BY seq {order} LIMIT {max(0, limit)}", values)
    return rows if matching.last is None else rows[::-1]


def _read_sample(since: str, caller: str | None) -> Script[tuple[int, list[Row]]]:
    where = "at_utc >= ?1 AND (CAST(?2 AS TEXT) IS NULL OR caller = ?2)"
    ((total,),) = yield Statement(f"SELECT count(*) FROM audit WHERE {where}", (since, caller))  # noqa: S608 - constants
    # Multiples of the golden ratio are spread evenly, also those of every n-th record. Of every second record there would be
    # one tool alone, where a client calls two in turns.
    chosen = "seq * 40503 % 65536 < CAST(?3 AS BIGINT)"
    columns = f"substr(at_utc, 1, 16), source, tool, {_IS_FAILED}, duration_ms"
    sql = f"SELECT {columns} FROM audit WHERE {where} AND {chosen}"  # noqa: S608 - constants
    share = min(65536, -(-65536 * SAMPLE // max(1, int(total))))
    return int(total), (yield Statement(sql, (since, caller, share)))


def _count_outcomes(since: str, after: int) -> Script[list[Row]]:
    columns = f"source, tool, code, {_IS_FAILED}"
    sql = f"SELECT {columns}, count(*) FROM audit WHERE at_utc >= ?1 AND seq > ?2 GROUP BY {columns}"  # noqa: S608 - constants
    return (yield Statement(sql, (since, after)))


def _read_usage(since: str, caller: str | None, after: int) -> Script[tuple[list[Row], bool]]:
    where = "seq > ?1 AND at_utc >= ?2 AND (CAST(?3 AS TEXT) IS NULL OR caller = ?3)"
    columns = f"caller, count(*), {_FAILED}, avg(duration_ms), max(at_utc)"
    sql = f"SELECT {columns} FROM audit WHERE {where} GROUP BY caller ORDER BY count(*) DESC, caller"  # noqa: S608 - constants
    rows = yield Statement(sql, (after, since, caller))
    edge = yield Statement("SELECT at_utc FROM audit WHERE seq = ?1", (after,))
    return rows, bool(edge) and str(edge[0][0]) >= since


def _read_chunk(start: int, end: int) -> Script[list[Row]]:
    return (yield Statement(f"{_SELECT} seq BETWEEN ?1 AND ?2 ORDER BY seq LIMIT {CHUNK}", (start, end)))


def _find_past_head() -> Script[int | None]:
    rows = yield Statement("SELECT min(seq) FROM audit WHERE seq > (SELECT seq FROM audit_head)")
    seq: int | None = rows[0][0]
    return seq
