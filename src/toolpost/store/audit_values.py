"""The values of the audit: an entry, a record in the chain, a filter, and the verdict on a chain. No I/O."""

from dataclasses import dataclass
from typing import Literal

import msgspec

from toolpost.base.ids import CallerId, CallId, Digest, ToolName, TraceId

Outcome = Literal["ok", "error", "refused", "cancelled", "lost"]
"""`lost`: the gateway ended while the tool ran, so that what became of the call is not known."""


class AuditDraft(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call before it is dispatched."""

    at_utc: str
    """When the call arrived: ISO 8601 with milliseconds and `Z`."""
    call_id: CallId
    trace_id: TraceId
    caller: CallerId
    tool: ToolName
    source: str
    """The plugin or the server that the tool belongs to."""
    contract: str
    """The digest of the contract it ran under, empty if there was none."""
    schema_version: int
    tooling_version: str
    arguments: str
    """The digest of the arguments."""

    def complete(self, *, outcome: Outcome, code: str | None, duration_ms: float, result: str | None) -> "AuditEntry":
        """Return the entry of a call that has ended."""
        return AuditEntry(
            at_utc=self.at_utc,
            call_id=self.call_id,
            trace_id=self.trace_id,
            caller=self.caller,
            tool=self.tool,
            source=self.source,
            contract=self.contract,
            schema_version=self.schema_version,
            tooling_version=self.tooling_version,
            arguments=self.arguments,
            outcome=outcome,
            code=code,
            duration_ms=duration_ms,
            result=result,
        )


class AuditEntry(AuditDraft, frozen=True, kw_only=True, gc=False):
    """The record of a call. Arguments and result are there as digests only."""

    outcome: Outcome
    code: str | None
    """The `ErrorCode`, if it failed."""
    duration_ms: float
    result: str | None
    """The digest of the result, if there is one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditRecord:
    """An entry of the chain, with its position and hashes."""

    seq: int
    entry: AuditEntry
    previous: Digest
    hash: Digest


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditFilter:
    """Which entries to return: those that match every field that is given."""

    tool: str | None = None
    """A pattern: `*` is any text, `?` any character, the rest is itself."""
    caller: str | None = None
    code: str | None = None
    outcome: Outcome | None = None
    since: str | None = None
    """From this time on, written as in `at_utc`, or the beginning of it (`2026-03-01`)."""
    until: str | None = None
    """Before this time, written likewise."""
    call_id: str | None = None
    trace_id: str | None = None
    before: int | None = None
    """Only those before this seq: to go on where a page ended."""
    has_contents: bool = False
    """Only calls whose contents were kept for review."""
    last: int | None = None
    """Only so many of the newest."""


SampledCall = tuple[str, str, str, int, float]
"""One of the calls that figures are made of: its minute, as in `at_utc`; the source; the tool; whether it ended with an error, or
was refused or lost, as 1 or 0; and its duration in milliseconds. A plain tuple: there are thousands.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallSample:
    """Calls since a time: all of them, or as many as figures need."""

    calls: list[SampledCall]
    total: int
    """How many there are."""

    @property
    def weight(self) -> float:
        """How many calls each of the sample stands for."""
        return self.total / len(self.calls) if self.calls else 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class OutcomeCount:
    """How many calls of one tool had one outcome since a time."""

    source: str
    tool: str
    code: str | None
    """The `ErrorCode`, if there is one."""
    is_failed: bool
    calls: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """The calls of one caller."""

    caller: str
    calls: int
    failed: int
    """Those that ended with an error, or were refused or lost."""
    mean_ms: float
    last_at: str
    """As in `at_utc`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditVerdict:
    """The result of verifying the whole chain."""

    checked: int
    """How many records are intact, from the first one on."""
    head: Digest
    """The hash of the last intact record. A copy outside the store also detects a chain that was rewritten."""
    broken_seq: int | None = None
    """The first record that is not as it was written; None also if the store could not be read."""
    reason: str | None = None
    """What is wrong; None if nothing is."""
    sealed: int = 0
    """How many of the first records were sealed and removed: of them only their segments were verified."""
    noted: int = 0
    """Entries in journals beside the store that are not in the chain yet: opening the store adds them."""

    @property
    def is_intact(self) -> bool:
        """Whether nothing was changed, removed or inserted. True also for an empty chain, which proves nothing."""
        return self.reason is None

    @property
    def is_empty(self) -> bool:
        return self.is_intact and self.checked == 0
