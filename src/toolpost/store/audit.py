"""The audit's values: what a call leaves on the record, how it is asked for, what verifying it says."""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from toolpost.base.ids import CallerId, CallId, Digest, ToolName, TraceId

Outcome = Literal["ok", "error", "refused", "cancelled"]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a call leaves on the record. Arguments and result are there as digests, never as themselves."""

    at_utc: str
    """When the call came in: ISO 8601 with milliseconds and `Z`."""
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
    outcome: Outcome
    code: str | None
    """The `ErrorCode`, if it went wrong."""
    duration_ms: float
    result: str | None
    """The digest of the result, if there is one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditRecord:
    """An entry in its place in the chain."""

    seq: int
    entry: AuditEntry
    previous: Digest
    hash: Digest


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditFilter:
    """Which entries are wanted; what is not given does not narrow."""

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
    last: int | None = None
    """Only so many of the newest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditVerdict:
    """What following the whole chain has shown."""

    checked: int
    """How many records are sound, from the first one on."""
    head: Digest
    """The hash of the last sound record. Kept elsewhere, it proves a rewritten chain too."""
    broken_seq: int | None = None
    """The first record that is not as it was written; None too where the store could not even be read."""
    reason: str | None = None
    """What is wrong, if anything is."""
    noted: int = 0
    """Entries that were written down beside the store and are not in the chain yet: opening the store takes them over."""

    @property
    def is_intact(self) -> bool:
        """Whether nothing was changed, removed or slipped in. An empty chain is, too, and proves nothing."""
        return self.reason is None

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to verify."""
        return self.is_intact and self.checked == 0


class AuditLog(Protocol):
    """The record of every call. Entries are added; none is ever changed."""

    def append(self, entry: AuditEntry, *, alone: bool = False) -> Awaitable[None]:
        """Put an entry on the record; done when it is committed. To be awaited at once, on the store's loop.

        `alone` says that no other is under way, so that a store may write it down safely and commit it with later ones.
        Whoever is cancelled while waiting leaves the entry behind: it is committed all the same.
        """
        ...

    def note(self, entry: AuditEntry) -> bool:
        """Put an entry on the record without waiting, as `append` does with `alone`; False if that cannot be done."""
        ...

    async def entries(self, matching: AuditFilter, *, after: int = 0, limit: int) -> list[AuditRecord]:
        """Return the records past `after` that match, oldest first, at most `limit`."""
        ...

    async def newest(self) -> int:
        """Return the seq of the newest record, 0 if there is none.

        For whoever follows: a cursor that moves on past what did not match.
        """
        ...

    async def verify(self) -> AuditVerdict:
        """Follow the chain from its first record to its head and name the first break."""
        ...
