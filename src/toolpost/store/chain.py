"""The hash chain over the audit: the hash of a record covers all of its fields and the hash of the record before it. No I/O."""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, get_args

import msgspec

from toolpost.base.ids import CallerId, CallId, Digest, ToolName, TraceId
from toolpost.contracts.errors import GatewayError
from toolpost.store.audit_values import AuditEntry, AuditRecord, AuditVerdict, Outcome

FORMAT = 1
"""Hashed with every record; to be increased when the fields or their order change."""

BEGINNING = Digest("sha256:" + "0" * 64)
"""The `previous` of the first record."""

FIELDS = AuditEntry.__struct_fields__
"""The fields in the order in which they are hashed, which is that of the table's columns too."""

COLUMNS = ("seq", *FIELDS, "previous", "hash")
"""The columns of the table."""

# A database stores NewTypes and literals as plain text; what it returns must have the hash of what was stored.
Values = tuple[
    str, CallId, TraceId, CallerId, ToolName, str, str, int, str, str, Outcome, str | None, float, str | None
]
Row = tuple[Any, ...]
"""A record as a table holds it: seq, the values, previous, hash."""

_encode = msgspec.json.Encoder().encode

# The types of nearly every row: comparing them is faster than `msgspec.convert`, which costs more than the hash.
_EXPECTED_TYPES = frozenset(
    (*(str,) * 7, int, *(str,) * 3, code, float, result) for code in (str, type(None)) for result in (str, type(None))
)
_OUTCOME = FIELDS.index("outcome")
_LARGEST = 2**63 - 1
_LONGEST_MS = 1e15
"""The limit of the table's CHECK. Infinity is encoded as null, and so would have the same hash."""

_OUTCOMES = frozenset(get_args(Outcome))


def values_of(entry: AuditEntry) -> Values:
    """Return the values of an entry as they are hashed and stored; raise `GatewayError` for one that is malformed.

    A database would silently convert some values, and return something else than was hashed.
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
    if tuple(map(type, values)) not in _EXPECTED_TYPES or values[_OUTCOME] not in _OUTCOMES:
        try:
            values = msgspec.convert(values, Values)
        except msgspec.ValidationError as error:
            raise GatewayError(f"an audit entry is malformed: {error}") from error
    if not (0 <= entry.duration_ms <= _LONGEST_MS and abs(entry.schema_version) <= _LARGEST):
        raise GatewayError("an audit entry is malformed: a number is out of range")
    return values


def link_entries(entries: Iterable[Values], *, seq: int, previous: Digest) -> list[Row]:
    """Return the rows that continue a chain whose newest record is `seq`."""
    rows: list[Row] = []
    for values in entries:
        seq += 1
        record_hash = _hash_record(previous, seq, values)
        rows.append((seq, *values, previous, record_hash))
        previous = record_hash
    return rows


def record_of(row: Row) -> AuditRecord:
    """Read a row back."""
    seq, *values, previous, record_hash = row
    entry = AuditEntry(**dict(zip(FIELDS, values, strict=True)))
    return AuditRecord(seq=seq, entry=entry, previous=previous, hash=record_hash)


class ChainVerifier:
    """Verifies a chain in parts, oldest record first, up to the first break."""

    def __init__(self, seq: int = 0, previous: Digest = BEGINNING) -> None:
        """Begin after this record: the last one that was sealed and removed."""
        self.sealed = self.seq = seq
        self.hash = previous

    def check_rows(self, rows: Iterable[Row]) -> AuditVerdict | None:
        """Verify the next rows; return a verdict at a break, else None."""
        for row in rows:
            if reason := self._find_break(row):
                return self.make_break(min(row[0], self.seq + 1), reason)
            self.seq, self.hash = row[0], row[-1]
        return None

    def check_head(self, head: tuple[int, Digest] | None) -> AuditVerdict:
        """Compare the last verified record with the stored head."""
        if head is None:
            return self.make_break(self.seq + 1, "the head is missing: whether records follow cannot be known")
        seq, record_hash = head
        if seq > self.seq:
            return self.make_break(self.seq + 1, f"it is missing: the head names {seq} records")
        if (seq, record_hash) != (self.seq, self.hash):
            return self.make_break(max(1, self.seq), "the head does not match it")
        return AuditVerdict(checked=self.seq, head=self.hash, sealed=self.sealed)

    def make_break(self, seq: int, reason: str) -> AuditVerdict:
        """Return the verdict that the chain is intact up to here, and what is wrong with `seq`."""
        return AuditVerdict(checked=self.seq, head=self.hash, sealed=self.sealed, broken_seq=seq, reason=reason)

    def _find_break(self, row: Row) -> str | None:
        seq, *values, previous, record_hash = row
        if seq > self.seq + 1:
            return f"it is missing: the next record is {seq}"
        if seq <= self.seq:
            return "it stands before the first record"
        if previous != self.hash:
            return "it does not continue the record before it"
        return _find_hash_break(previous, seq, values, record_hash)


def _find_hash_break(previous: Digest, seq: int, values: Sequence[Any], record_hash: str) -> str | None:
    # Bytes would be hashed as the text of their base64, so that they could pass for another text.
    if any(type(value) is bytes for value in values):
        return "it was changed: a text has become bytes"
    try:
        expected = _hash_record(previous, seq, values)
    except ValueError:
        return "it was changed: a text is not Unicode"
    return None if record_hash == expected else "it was changed: its hash does not match"


def _hash_record(previous: Digest, seq: int, values: Sequence[Any]) -> Digest:
    return Digest("sha256:" + sha256(_encode((FORMAT, previous, seq, *values))).hexdigest())
