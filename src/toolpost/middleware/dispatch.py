"""Dispatch: run the tool, and turn its outcome into a checked result or one of our errors."""

import asyncio
import logging

import msgspec

from toolpost.base.events import event
from toolpost.contracts.errors import (
    CallerError,
    ClientCannotAnswer,
    InvalidArguments,
    ToolFailed,
    ToolpostError,
    UnknownTool,
    UpstreamRefused,
)
from toolpost.contracts.issues import list_issues_for_log
from toolpost.middleware.call import Call
from toolpost.middleware.custom_result import check_custom_result
from toolpost.middleware.interface import CheckedResult
from toolpost.middleware.passthrough import check_passthrough
from toolpost.middleware.validate import Validation
from toolpost.protocol.era import MISSING_CAPABILITY
from toolpost.protocol.era import has_stateless_envelope as is_stateless
from toolpost.protocol.rpc import ProtocolError
from toolpost.providers import RawResult

_log = logging.getLogger("toolpost.dispatch")
_encode = msgspec.json.Encoder().encode


async def dispatch(call: Call, *, validation: Validation) -> CheckedResult:
    """Run the tool, check its result, encode it once. Failures are logged here, with their cause."""
    # A call that was cancelled while it waited must not run: a tool without an await would not notice.
    call.raise_if_ended()
    try:
        returned = await _invoke(call)
        if returned.upstream_fields is not None:
            return await check_passthrough(call, returned.upstream_fields, returned.results, validation)
        if returned.is_custom:
            return await check_custom_result(call, returned, validation)
        try:
            encoded = _encode(returned.value)
        except (TypeError, ValueError) as error:
            raise ToolFailed(f"The tool returned something that is not JSON: {error}") from error
        if (checking := validation.check_result(call, returned.value, encoded)) is not None:
            await checking
        return CheckedResult(encoded, returned.content, facts=returned.facts)
    except ToolpostError as error:
        if not isinstance(error, UnknownTool):  # of `automatic_eval`; the gateway logs it, within a limit
            _log_failure(call, error)
        raise


async def _invoke(call: Call) -> RawResult:
    """Run the tool; of all cancellations only one of the call itself passes through."""
    try:
        return await call.tool.invoke(call.arguments, call.context)
    except InvalidArguments as error:
        # Refused by the tool's own validator. The schema goes back with this refusal too.
        error.details = {**error.details, "inputSchema": call.tool.contract.arguments_schema.raw}
        raise
    except ClientCannotAnswer as error:
        if not is_stateless(call.context.meta):
            raise
        # There the protocol has an error for it, by which a client learns what to declare.
        data = {"requiredCapabilities": error.required, **error.as_object()}
        raise UpstreamRefused(error.message, rpc_code=MISSING_CAPABILITY, data=data) from error
    except ToolpostError:
        raise
    except ProtocolError as error:
        raise UpstreamRefused(error.message, rpc_code=error.code, data=error.data) from error
    except asyncio.CancelledError as error:
        if call.scope.cancel_called or is_being_cancelled():
            raise
        raise ToolFailed("The tool waited for something that was cancelled.", exception="CancelledError") from error
    except (Exception, SystemExit) as error:
        raise _error_of(error) from error


def _error_of(error: BaseException) -> ToolpostError:
    """Wrap what a tool raised in `ToolFailed`; an exception group of one counts as that one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, ToolpostError):
        return error
    # The text of a `KeyError` is the key alone, which says nothing.
    text = f"KeyError: {error}" if isinstance(error, KeyError) else str(error)
    return ToolFailed(text or type(error).__name__, exception=type(error).__name__)


def is_being_cancelled() -> bool:
    """Whether the current task has a cancellation pending."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _log_failure(call: Call, error: ToolpostError) -> None:
    call.is_logged = True
    # An upstream's protocol error is its answer: a traceback of our code would say nothing about it.
    is_callers_error = isinstance(error, CallerError | UpstreamRefused)
    event(
        _log,
        logging.INFO if is_callers_error else logging.WARNING,
        "tool failed",
        **call.log_fields,
        code=error.code.value,
        message=error.message,
        issues=list_issues_for_log(error),
        # Errors of callers contain their values, which must not get into the log.
        exception=None if is_callers_error else error.__cause__ or error,
    )
