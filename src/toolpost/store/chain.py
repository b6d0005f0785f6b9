"""The hash chain over the audit: each record seals all of its fields and the record before it. No I/O."""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, get_args

import msgspec

from toolpost.base.ids import CallerId, CallId, Digest, ToolName, TraceId
from toolpost.contracts.errors import GatewayError
from toolpost.store.audit_values import AuditEntry, AuditRecord, AuditVerdict, Outcome

FORMAT = 1
"""Hashed with every record. It rises when the fields or their order change."""

BEGINNING = Digest("sha256:" + "0" * 64)
"""What the first record has for a predecessor."""

FIELDS = AuditEntry.__struct_fields__
"""The fields in the order in which they are hashed, which is that of the table's columns too."""

COLUMNS = ("seq", *FIELDS, "previous", "hash")
"""Those of the table."""

# NewTypes and literals are plain text to a database; what it gives back must hash to what was put in.
Values = tuple[
    str, CallId, TraceId, CallerId, ToolName, str, str, int, str, str, Outcome, str | None, float, str | None
]
Row = tuple[Any, ...]
"""A record as a table holds it: seq, the values, previous, hash."""

_encode = msgspec.json.Encoder().encode

# What nearly every row is, known by a look at its types: to have msgspec read the annotation costs more than the hash.
_SOUND = frozenset(
    (*(str,) * 7, int, *(str,) * 3, code, float, result) for code in (str, type(None)) for result in (str, type(None))
)
_OUTCOME = FIELDS.index("outcome")
_LARGEST = 2**63 - 1
_LONGEST_MS = 1e15
"""What the table's own check allows: infinity is hashed as null, and could be taken for it."""

_OUTCOMES = frozenset(get_args(Outcome))


def values_of(entry: AuditEntry) -> Values:
    """Return the values of an entry as they are hashed and stored; raise `GatewayError` for one that is malformed.

    A database would quietly convert some values, and then give back something else than was hashed.
    """
    values: Values = (
        entry.at_utc,
        entry.call_id,
        entry.trace_id,
        entry.caller,
        entry.tool,
        entry.source,
        entry.contract,
        entry.schema_version,
        entry.tooling_version,
        entry.arguments,
        entry.outcome,
        entry.code,
        # An int, or minus zero, comes back from a database as a plain float and would break the chain.
        entry.duration_ms + 0.0,
        entry.result,
    )
    if tuple(map(type, values)) not in _SOUND or values[_OUTCOME] not in _OUTCOMES:
        try:
            values = msgspec.convert(values, Values)
        except msgspec.ValidationError as error:
            raise GatewayError(f"an audit entry is malformed: {error}") from error
    if not (0 <= entry.duration_ms <= _LONGEST_MS and abs(entry.schema_version) <= _LARGEST):
        raise GatewayError("an audit entry is malformed: a number is out of range")
    return values


def link(entries: Iterable[Values], *, seq: int, previous: Digest) -> list[Row]:
    """Return the rows that continue a chain whose newest record is `seq`."""
    rows: list[Row] = []
    for values in entries:
        seq += 1
        seal = _seal(previous, seq, values)
        rows.append((seq, *values, previous, seal))
        previous = seal
    return rows


def record_of(row: Row) -> AuditRecord:
    """Read a row back."""
    seq, *values, previous, seal = row
    entry = AuditEntry(**dict(zip(FIELDS, values, strict=True)))
    return AuditRecord(seq=seq, entry=entry, previous=previous, hash=seal)


class ChainWalk:
    """A walk along the chain, oldest record first, up to the first break."""

    def __init__(self) -> None:
        self.seq = 0
        self.hash = BEGINNING

    def follow(self, rows: Iterable[Row]) -> AuditVerdict | None:
        """Go on over these rows; return a verdict at a break."""
        for row in rows:
            if reason := self._fault_in(row):
                return self.broken(min(row[0], self.seq + 1), reason)
            self.seq, self.hash = row[0], row[-1]
        return None

    def arrive(self, head: tuple[int, Digest] | None) -> AuditVerdict:
        """Compare where the walk has ended with the head that was written beside the chain."""
        if head is None:
            return self.broken(self.seq + 1, "the head is missing: whether records follow cannot be known")
        seq, seal = head
        if seq > self.seq:
            return self.broken(self.seq + 1, f"it is missing: the head names {seq} records")
        if (seq, seal) != (self.seq, self.hash):
            return self.broken(max(1, self.seq), "the head does not match it")
        return AuditVerdict(checked=self.seq, head=self.hash)

    def broken(self, seq: int, reason: str) -> AuditVerdict:
        """Return the verdict that the chain is sound up to here, and what is wrong next."""
        return AuditVerdict(checked=self.seq, head=self.hash, broken_seq=seq, reason=reason)

    def _fault_in(self, row: Row) -> str | None:
        seq, *values, previous, seal = row
        if seq > self.seq + 1:
            return f"it is missing: the next record is {seq}"
        if seq <= self.seq:
            return "it stands before the first record"
        if previous != self.hash:
            return "it does not continue the record before it"
        return _fault_in_seal(previous, seq, values, seal)


def _fault_in_seal(previous: Digest, seq: int, values: Sequence[Any], seal: str) -> str | None:
    # Bytes would be hashed as the text of their base64, so that they could pass for another text.
    if any(type(value) is bytes for value in values):
        return "it was changed: a text has become bytes"
    try:
        expected = _seal(previous, seq, values)
    except ValueError:
        return "it was changed: a text is not Unicode"
    return None if seal == expected else "it was changed: its hash does not match"


def _seal(previous: Digest, seq: int, values: Sequence[Any]) -> Digest:
    return Digest("sha256:" + sha256(_encode((FORMAT, previous, seq, *values))).hexdigest())
