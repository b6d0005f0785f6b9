"""Audit-enter and audit-exit: what a call leaves on the record, whatever became of it."""

import asyncio
import time
from functools import lru_cache, partial

from toolpost.base.redaction import redact
from toolpost.contracts.digest import digest_of_bytes, quick_digest
from toolpost.contracts.errors import CallCancelled, ContractChanged, ErrorCode, GatewayError, ToolpostError
from toolpost.middleware.call import Call
from toolpost.middleware.interface import NextStep, Outcome
from toolpost.store import AuditEntry, AuditLog
from toolpost.store import Outcome as Recorded


def audit_enter(call: Call) -> None:
    """Note that the call passed every gate: from here on the tool may have had an effect."""
    call.has_entered = True


class AuditExit:
    """Writes one entry per call, and holds the answer back until the entry is committed."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self.within: set[Call] = set()
        """The calls that are under way."""

    def is_noted(self, call: Call, outcome: Outcome) -> bool:
        """Put a call that is alone on the record now, if it need not be waited for."""
        return self._log.note(_entry_of(call, outcome))

    def recording(self, call: Call, outcome: Outcome) -> asyncio.Future[None]:
        """Put a call on the record together with others; done when it is there."""
        return asyncio.ensure_future(self._log.append(_entry_of(call, outcome)))

    async def __call__(self, call: Call, proceed: NextStep) -> Outcome:
        """Let the call pass, then put it on the record."""
        if call.unrecorded is not None:
            raise call.unrecorded
        self.within.add(call)
        try:
            outcome = await proceed(call)
        except ToolpostError as error:
            await self._log.append(_entry(call, _outcome_of(call, error), error.code, None))
            raise
        except asyncio.CancelledError:
            # Cancelled from outside, with the task that carried it: the entry is queued, nobody is left to wait for it.
            self._log.append(_entry(call, "cancelled", ErrorCode.CANCELLED, None))
            raise
        except Exception:
            await self._log.append(_entry(call, "error", ErrorCode.INTERNAL, None))
            raise
        else:
            await self._log.append(_entry_of(call, outcome), alone=len(self.within) == 1)
            return outcome
        finally:
            self.within.discard(call)


def _outcome_of(call: Call, error: ToolpostError) -> Recorded:
    if isinstance(error, CallCancelled):
        return "cancelled"
    if isinstance(error, GatewayError):
        return "error"  # something is broken, a middleware for instance; nobody has refused anything
    # A withheld tool lets a call in only to turn it away.
    return "error" if call.has_entered and not isinstance(error, ContractChanged) else "refused"


def written(at: float) -> str:
    """Write a moment in ISO 8601 with milliseconds; the second is written once for all calls of that second."""
    second = int(at)
    return f"{_second(second)}.{int((at - second) * 1000):03d}Z"


@lru_cache(maxsize=4)
def _second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def prepare_entry(call: Call) -> None:
    """Draft the entry of a call that has begun: there is time while the tool runs."""
    contract = call.tool.contract
    call.draft = partial(
        AuditEntry,
        at_utc=written(call.at),
        call_id=call.id,
        trace_id=call.trace_id,
        caller=call.caller.id,
        tool=contract.name,
        source=call.tool.provider,
        contract=contract.digest,
        schema_version=contract.terms.schema_version,
        tooling_version=contract.terms.tooling_version,
        arguments=quick_digest(redact(call.arguments)),
    )


def _entry_of(call: Call, outcome: Outcome) -> AuditEntry:
    if outcome.is_error:
        return _entry(call, "error", ErrorCode.HANDLER_ERROR, outcome)
    return _entry(call, "ok", None, outcome)


def _entry(call: Call, outcome: Recorded, code: ErrorCode | None, result: Outcome | None) -> AuditEntry:
    if call.draft is None:
        prepare_entry(call)
    assert call.draft is not None
    return call.draft(
        outcome=outcome,
        code=code.value if code else None,
        duration_ms=round(call.duration_ms, 3),
        result=digest_of_bytes(result.encoded) if result else None,
    )
