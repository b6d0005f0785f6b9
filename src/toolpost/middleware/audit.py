"""Audit-enter and audit-exit: every call leaves one entry, whatever its outcome, and is answered only when the entry is
committed.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from toolpost.audit import AuditEntry, Outcome
from toolpost.base import format_time, redact
from toolpost.base.ids import Digest
from toolpost.contracts.digest import digest_of_bytes, quick_digest
from toolpost.contracts.errors import (
    CallCancelled,
    ContractChanged,
    ErrorCode,
    GatewayError,
    NotReadOnly,
    ToolpostError,
)
from toolpost.middleware.call import Call
from toolpost.middleware.interface import CheckedResult, NextStep
from toolpost.store.audit import AuditLog
from toolpost.store.audit_values import AuditDraft

LARGE_BYTES: Final = 1 << 20
"""The digest of a larger result is computed in a thread: that of 16 MB takes 45 ms."""


class AuditEnter:
    """Journals each call before it is dispatched, so that it is known of even if the gateway is killed while the tool runs."""

    def __init__(self, log: AuditLog) -> None:
        self._call_journal = log.call_journal

    def __call__(self, call: Call) -> None:
        """Note that the call passed every check: from here on the tool may have an effect."""
        if call.took_fast_path and call.journal_slot is not None:
            # The fast path has left it to a task: what its server was sent is in the journal.
            return
        if not call.took_fast_path:
            call.checked_ns = time.monotonic_ns()
        if self._call_journal is not None:
            # A call enters again when a middleware runs it a second time, perhaps with other arguments.
            before = call.journal_slot
            prepare_entry(call)
            assert call.pending_entry is not None
            call.journal_slot = self._call_journal.enter(call.pending_entry)
            if before is not None:
                self._call_journal.leave(before)
        call.has_entered = True

    def undo(self, call: Call) -> None:
        """Take back that a call has entered: it was not dispatched after all."""
        call.has_entered = False
        call.checked_ns = 0
        if self._call_journal is not None and call.journal_slot is not None:
            self._call_journal.leave(call.journal_slot)
            call.journal_slot = None


class AuditExit:
    """Writes one entry per call, and delays the answer until the entry is committed.

    A call whose entry cannot be written stays in the journal of calls in flight until it can be.
    """

    def __init__(self, log: AuditLog, on_recorded: Sequence[Callable[[Call], None]] = ()) -> None:
        self._log = log
        self._call_journal = log.call_journal
        self._on_recorded = tuple(on_recorded)
        self.in_progress: set[Call] = set()
        """Calls whose entry is not written yet, with or without a task; the fast path reads how many there are."""
        self._queued: set[asyncio.Task[None]] = set()
        """Writing entries of calls whose task was cancelled."""

    def release(self, call: Call) -> None:
        """Remove a call from `in_progress` and from the call journal: its entry is written."""
        self.in_progress.discard(call)
        if self._call_journal is not None and call.journal_slot is not None:
            self._call_journal.leave(call.journal_slot)
            call.journal_slot = None
        call.recorded_ns = time.monotonic_ns()
        for tell in self._on_recorded:
            tell(call)

    def append_now(self, call: Call, result: CheckedResult) -> bool:
        """Write the entry of a call that is alone in progress; False if that cannot be done without waiting."""
        return len(result.encoded) <= LARGE_BYTES and self._log.try_journal(self._entry_of(call, result))

    def append(self, call: Call, result: CheckedResult) -> asyncio.Future[None]:
        """Queue the entry of a call, to be committed with others; the future is done when it is committed."""
        if len(result.encoded) > LARGE_BYTES:
            return asyncio.ensure_future(self._append_large(call, result))
        return asyncio.ensure_future(self._log.append(self._entry_of(call, result)))

    async def _append_large(self, call: Call, result: CheckedResult) -> None:
        digest = await _digest_in_thread(result)
        await self._log.append(self._entry_of(call, result, digest))

    def append_late(self, call: Call, result: CheckedResult) -> None:
        """Have an entry that `append` could not write written as soon as that is possible."""
        self.write_late(call, self._entry_of(call, result))

    async def __call__(self, call: Call, proceed: NextStep) -> CheckedResult:
        self.in_progress.add(call)
        digesting: asyncio.Future[Digest] | None = None
        try:
            result = await proceed(call)
            if len(result.encoded) > LARGE_BYTES:
                digesting = asyncio.ensure_future(_digest_in_thread(result))
                await asyncio.shield(digesting)
        except ToolpostError as error:
            await self._write(call, self.make_entry(call, _outcome_of(call, error), error.code, None))
            raise
        except asyncio.CancelledError:
            # The task itself was cancelled from outside: the entry is queued, and there is no answer that would wait for it.
            queued = asyncio.create_task(self._append_cancelled(call, digesting))
            self._queued.add(queued)
            queued.add_done_callback(self._queued.discard)
            raise
        except Exception:
            await self._write(call, self.make_entry(call, "error", ErrorCode.INTERNAL, None))
            raise
        else:
            entry = self._entry_of(call, result, digesting.result() if digesting is not None else None)
            try:
                await self._log.append(entry, is_only_call=len(self.in_progress) == 1)
            except Exception:
                self.write_late(call, entry)
                raise
            self.release(call)
            return result
        finally:
            self.in_progress.discard(call)

    async def _write(self, call: Call, entry: AuditEntry) -> None:
        try:
            await self._log.append(entry)
        except Exception:
            self.write_late(call, entry)
            raise
        self.release(call)

    def write_late(self, call: Call, entry: AuditEntry) -> None:
        """Have an entry that the store refused written as soon as that is possible."""
        slot, call.journal_slot = call.journal_slot, None
        self._log.append_late(entry, slot)

    async def _append_cancelled(self, call: Call, digesting: "asyncio.Future[Digest] | None") -> None:
        digest = await digesting if digesting is not None else None
        entry = self.make_entry(call, "cancelled", ErrorCode.CANCELLED, None, digest)
        try:
            await self._log.append(entry)
        except Exception:  # noqa: BLE001 (the store is away, and no client waits for the answer)
            self.write_late(call, entry)
        else:
            self.release(call)

    def _entry_of(self, call: Call, result: CheckedResult, digest: Digest | None = None) -> AuditEntry:
        if result.is_error:
            return self.make_entry(call, "error", ErrorCode.HANDLER_ERROR, result, digest)
        return self.make_entry(call, "ok", None, result, digest)

    def make_entry(
        self,
        call: Call,
        outcome: Outcome,
        code: ErrorCode | None,
        result: CheckedResult | None,
        digest: Digest | None = None,
    ) -> AuditEntry:
        """Make the entry of a call that has ended: its duration is until now. `digest` is that of the result, if it is known."""
        if call.pending_entry is None:
            prepare_entry(call)
        assert call.pending_entry is not None
        call.answered_ns = time.monotonic_ns()
        return call.pending_entry.complete(
            outcome=outcome,
            code=code.value if code else None,
            duration_ms=round(call.duration_ms, 3),
            result=digest or (digest_of_bytes(result.encoded) if result else None),
        )


async def _digest_in_thread(result: CheckedResult) -> Digest:
    return await asyncio.to_thread(digest_of_bytes, result.encoded)


def outcome_of(call: Call, error: BaseException) -> tuple[Outcome, ErrorCode]:
    """Return the outcome and the code of a call that ends with an error, as seen from within the deadline."""
    if isinstance(error, asyncio.CancelledError):
        try:
            call.raise_if_ended()
        except ToolpostError as ended:
            error = ended
        else:
            return "cancelled", ErrorCode.CANCELLED
    if isinstance(error, ToolpostError):
        return _outcome_of(call, error), error.code
    return "error", ErrorCode.INTERNAL


def _outcome_of(call: Call, error: ToolpostError) -> Outcome:
    if isinstance(error, CallCancelled):
        return "cancelled"
    if isinstance(error, GatewayError):
        return "error"  # a bug, in a middleware for instance; not a refusal
    # A tool that is quarantined or forbidden is entered only to raise these.
    return "error" if call.has_entered and not isinstance(error, ContractChanged | NotReadOnly) else "refused"


def prepare_entry(call: Call) -> None:
    """Draft the entry of a call that has begun, while the tool runs and there is time for it."""
    contract, caller, arguments = call.tool.contract, call.caller, redact(call.arguments)
    encoded, call.encoded_arguments = call.encoded_arguments, None
    if arguments is not call.arguments:
        encoded = None  # it has what the audit must not see
    call.pending_entry = AuditDraft(
        at_utc=format_time(call.at),
        call_id=call.id,
        trace_id=call.trace_id,
        # An administrator who calls with the rights of another is named too.
        caller=caller.id if caller.acted_by is None else caller.recorded_as,
        tool=contract.name,
        source=call.tool.provider,
        contract=contract.digest,
        schema_version=contract.terms.schema_version,
        tooling_version=contract.terms.tooling_version,
        arguments=quick_digest(arguments) if encoded is None else digest_of_bytes(encoded),
    )
