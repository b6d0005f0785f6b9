"""Dispatch: the tool runs, and whatever it does becomes an outcome or an error of ours."""

import asyncio
import logging

import msgspec

from toolpost.base.events import event
from toolpost.base.ids import Json
from toolpost.contracts.errors import CallerError, InvalidArguments, ToolFailed, ToolpostError, UpstreamRefused
from toolpost.middleware.call import Call
from toolpost.middleware.interface import Outcome
from toolpost.middleware.passthrough import passed_on
from toolpost.middleware.validate import Validation
from toolpost.providers import ToolReturn

_log = logging.getLogger("toolpost.dispatch")
_encode = msgspec.json.Encoder().encode


async def dispatch(call: Call, *, validation: Validation) -> Outcome:
    """Run the tool, check what it returned, encode it once."""
    # A call that was cancelled while it waited must not run: a tool without an await would not notice.
    call.raise_if_ended()
    try:
        returned = await _invoked(call)
        if returned.passed is not None:
            return await passed_on(call, returned.passed, returned.results, validation)
        encoded = _encoded(returned.value)
        if (checking := validation.check_result(call, returned.value, encoded)) is not None:
            await checking
        return Outcome(encoded, returned.content, facts=returned.facts)
    except ToolpostError as error:
        _log_failure(call, error)
        raise


async def _invoked(call: Call) -> ToolReturn:
    """Run the tool; only a cancellation of the call itself passes through."""
    try:
        return await call.tool.invoke(call.arguments, call.context)
    except InvalidArguments as error:
        # A validator of the author's own has refused them: the schema goes back with that refusal too.
        error.details = {**error.details, "inputSchema": call.tool.contract.arguments_schema.raw}
        raise
    except ToolpostError:
        raise
    except asyncio.CancelledError as error:
        if call.scope.cancel_called or is_being_cancelled():
            raise
        raise ToolFailed("The tool waited for something that was cancelled.", exception="CancelledError") from error
    except (Exception, SystemExit) as error:
        raise _failure(error) from error


def _failure(error: BaseException) -> ToolpostError:
    """Make an error of ours of whatever a tool raised; a group of one is that one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, ToolpostError):
        return error
    return ToolFailed(str(error) or type(error).__name__, exception=type(error).__name__)


def is_being_cancelled() -> bool:
    """Whether the task that runs this is on its way out."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _encoded(value: Json) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError) as error:
        raise ToolFailed(f"The tool returned something that is not JSON: {error}") from error


def _log_failure(call: Call, error: ToolpostError) -> None:
    call.is_logged = True
    # A server's own protocol error is its answer; where in our code it was read says nothing.
    is_callers = isinstance(error, CallerError | UpstreamRefused)
    event(
        _log,
        logging.INFO if is_callers else logging.WARNING,
        "tool failed",
        tool=call.tool.contract.name,
        plugin=call.tool.provider,
        code=error.code.value,
        message=error.message,
        call=call.id,
        trace=call.trace_id,
        caller=call.caller.id,
        thread=call.caller.thread,
        # What a caller got wrong is theirs to see, with its values: it stays out of the log.
        exception=None if is_callers else error.__cause__ or error,
    )
